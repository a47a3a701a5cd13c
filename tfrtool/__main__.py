"""``python -m tfrtool``, the same as the ``tfrtool`` command."""

import sys

from tfrtool.cli import main

if __name__ == "__main__":
    sys.exit(main())
