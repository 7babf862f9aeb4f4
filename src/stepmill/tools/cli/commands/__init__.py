"""One file per command; each has ``command``."""
