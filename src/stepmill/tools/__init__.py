"""What stands on the library: the command line, ``watch``, ``top``, ``verify``, the clock of benchmarks."""
