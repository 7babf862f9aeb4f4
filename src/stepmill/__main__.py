"""``python -m stepmill``: the same as the command ``stepmill``."""

import sys

from stepmill_command import main

if __name__ == "__main__":
    sys.exit(main())
