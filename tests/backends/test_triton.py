"""Loading Triton ahead, with a package in its place that tells where its driver was compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DRIVER = """
import os
from pathlib import Path

class driver:
    class active:
        @staticmethod
        def get_current_target():
            Path(os.environ["TRITON_CACHE_DIR"], "driver.so").touch()
"""


def test_the_driver_is_compiled_in_the_folder_of_that_process(tmp_path: Path) -> None:
    for file, text in (("triton/__init__.py", ""), ("triton/language.py", ""), ("triton/runtime.py", DRIVER)):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    folder = tmp_path / "cache"
    folder.mkdir()
    code = f"from steelyard.backends import _triton\n_triton.wake({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert [file.name for file in folder.iterdir()] == ["driver.so"]
