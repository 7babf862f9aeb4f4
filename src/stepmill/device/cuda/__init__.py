"""Native env classes on GPUs of NVIDIA: compiled for them while you wait, and stepped by one thread each."""
