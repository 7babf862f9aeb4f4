"""What ``verify`` is made of, in reading order: twins, side_by_side, comparing, results."""
