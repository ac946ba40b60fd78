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
TRITON = """
import os
from pathlib import Path

class Kernel:
    def __init__(self, function):
        self.name = function.__name__

    def __getitem__(self, grid):
        return lambda *args, BLOCK: Path(os.environ["TRITON_CACHE_DIR"], f"{self.name}.{len(args)}.so").touch()

jit = Kernel
"""
TORCH = """
class cuda:
    @staticmethod
    def synchronize():
        pass

def zeros(count, device):
    return [0] * count
"""


def test_driver_and_launches_are_compiled_in_the_folder_of_that_process(tmp_path: Path) -> None:
    made = {"triton/__init__.py": TRITON, "triton/language.py": "constexpr = int", "triton/runtime.py": DRIVER, "torch.py": TORCH}
    for file, text in made.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    folder = tmp_path / "cache"
    folder.mkdir()
    code = f"from steelyard.backends import _triton\n_triton.wake({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert sorted(file.name for file in folder.iterdir()) == ["driver.so", "from_one.3.so", "from_two.4.so"]
