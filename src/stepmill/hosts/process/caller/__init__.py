"""What runs in the caller's process: it starts the others and talks to them."""
