"""Native env classes on NVIDIA GPUs: compiled for them while you wait, and stepped by one thread each."""
