"""Interfaces over a pool: gymnasium, gym and dm. ``base`` is what all of them share."""
