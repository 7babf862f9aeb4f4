"""What runs on the other side of a fork: the base server, the template of a pool, the workers."""
