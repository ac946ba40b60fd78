"""Bench files and commands written for Hugging Face's benchmark_v2, run unchanged, or with one line added.

import steelyard.hf_bench                        # from here on `framework` is ours
python -m steelyard.hf_bench llama_benchmark.py  # or without a change to the file
python -m steelyard.hf_bench init FOLDER         # or write run_benchmarks.py, framework.py and benches/, for the original's own commands
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from steelyard import hf
from steelyard.dialects.hf import benches

RUNNER = '''"""benchmark_v2's runner, by Steelyard."""

import sys

from steelyard.cli.main import main

sys.exit(main(["as", "hf", "run_benchmarks", *sys.argv[1:]]))
'''
FRAMEWORK = '''"""benchmark_v2's framework, by Steelyard."""

from steelyard import hf_bench  # noqa: F401  (from here on `framework` is Steelyard's)
'''
ABOVE = "import os\nimport sys\n\nsys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))\n"
USAGE = "usage: python -m steelyard.hf_bench BENCH.py [ARGUMENT...]\n       python -m steelyard.hf_bench init [FOLDER]"

hf.put_in_place()


def init(folder: Path) -> None:
    """Write files that make the original's own commands run Steelyard; existing files are not changed."""
    made = {folder / "run_benchmarks.py": RUNNER, folder / "framework.py": FRAMEWORK}
    for path in sorted(Path(benches.__path__[0]).glob("*_benchmark.py")):
        text = path.read_text(encoding="utf-8")
        made[folder / "benches" / path.name] = text.replace("\nimport logging\n", f"\n{ABOVE}import logging\n", 1)
    if there := [path for path in made if path.exists()]:
        _end(f"error: {there[0]} exists already\n  name another folder, or run without these files: steelyard as hf run_benchmarks")
    (folder / "benches").mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}", file=sys.stderr)


def main(words: list[str]) -> None:
    """Run a bench file as Python would, with its own arguments, or write the files."""
    if not words or words[0] in ("-h", "--help"):
        _end(USAGE, 0 if words else 2)
    if words[0] == "init":
        init(Path(*words[1:2]))
        return
    if not Path(words[0]).is_file():
        _end(f"error: no such file: {words[0]!r}\n  name the bench file to run")
    sys.argv[:] = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


def _end(text: str, code: int = 2) -> None:
    print(text, file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
