"""Interfaces over a pool: gymnasium, gym and dm. ``pool`` has what all of them share."""
