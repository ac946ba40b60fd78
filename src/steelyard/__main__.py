"""`python -m steelyard`: the same program as `steelyard`, so it imports nothing from the current folder."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]
    from steelyard.cli.main import main

    sys.exit(main())
