"""Bench files written for Hugging Face's benchmark_v2, run directly: one line more in the file, or none.

import steelyard.hf_bench                        # from here on `framework` is ours
python -m steelyard.hf_bench llama_benchmark.py  # or without a change to the file
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from steelyard.dialects.hf.framework import put_in_place

put_in_place()


def main(words: list[str]) -> None:
    """Run a bench file as Python would, with its own arguments."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m steelyard.hf_bench BENCH.py [ARGUMENT...]", file=sys.stderr)
        raise SystemExit(0 if words else 2)
    if not Path(words[0]).is_file():
        print(f"error: there is no such file: {words[0]!r}\n  name the bench file that is to be run", file=sys.stderr)
        raise SystemExit(2)
    sys.argv[:] = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
