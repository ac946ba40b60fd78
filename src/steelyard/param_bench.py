"""Scripts written for PARAM's library, run by Steelyard: add one line to the script, or none.

import steelyard.param_bench                # from here on param_bench.train.compute.python… is ours
python -m steelyard.param_bench run_op.py   # or without a change to the script
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from steelyard.dialects.param.names import serve

serve()


def main(words: list[str]) -> None:
    """Run a script as Python would, with its own arguments."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m steelyard.param_bench SCRIPT.py [ARGUMENT...]", file=sys.stderr)
        raise SystemExit(0 if words else 2)
    if not Path(words[0]).is_file():
        print(f"error: no such file: {words[0]!r}\n  name the Python script to run", file=sys.stderr)
        raise SystemExit(2)
    sys.argv[:] = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
