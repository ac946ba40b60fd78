"""`python -m steelyard` is the same program as `steelyard`."""

from __future__ import annotations

import sys

from steelyard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
