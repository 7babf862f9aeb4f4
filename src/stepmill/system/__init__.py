"""The machine and interpreter below: optional packages, other Pythons, displays, signals, the end of the program."""
