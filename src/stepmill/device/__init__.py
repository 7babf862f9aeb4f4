"""Envs that live in arrays on a device, and are stepped there all at once. It is no host: there are no slots."""
