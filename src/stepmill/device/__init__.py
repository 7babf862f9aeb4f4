"""Envs that live in arrays on a device, and are stepped there all at once. Nothing here is a host: there are no slots."""
