"""``stepmill.verify``: compares native envs with Gymnasium's own."""
