"""`python -m steelyard` is the same program as `steelyard`: it imports nothing from the folder it is started in."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]
    from steelyard.cli.main import main

    sys.exit(main())
