"""A tiny stand-in for a TorchBench checkout: its folders, its contract, and models that go wrong in every way."""

from __future__ import annotations

from pathlib import Path

MODEL = """
import os, signal, subprocess, sys, threading
import torch

class Model:
    def __init__(self, test, device, batch_size=None, extra_args=None):
        self.batch_size = batch_size or 4
        self.device = device
        self.module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).to(device)
        {body}

    def get_module(self):
        return self.module, (torch.randn(self.batch_size, 8, device=self.device),)
"""
BODIES = {
    "good": "pass",
    "fixed": "pass\n    ALLOW_CUSTOMIZE_BSIZE = False",
    "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": """child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        open(os.environ["CHILD"], "w").write(str(child.pid))
        threading.Event().wait()""",
    "dies_at_the_end": """class Last:
            def flush(self):
                os.kill(os.getpid(), signal.SIGKILL)
            def write(self, text):
                return len(text)
        sys.stderr = Last()""",
    "raises": 'raise ValueError("\\x1b]0;owned\\x07no weights")',
    "needs_more": "import a_package_that_nobody_has",
}
POLICY = """
skip:
  all:
    - crashes
    - [nested, [deeper]]
  test:
    training: [only_inference]
  device:
    cuda: [only_cpu]
    tpu: []
  multiprocess: [alone]
batch_size:
  training:
    good: 2
    fixed: 7
  inference:
    good: 6
dont_change_batch_size: [fixed]
dtype:
  force_amp_for_fp16_bf16_models: [uncast]
tolerance:
  higher: [loose]
  cosine: [turned]
  good: 0.5
non_deterministic: [random]
deny:
  good:
    - {test: train, dynamo: inductor}
expected_failures:
  raises: {test: eval}
  good: {test: train}
"""


def make(root: Path, *names: str, policy: str = "") -> Path:
    """A checkout with these models, and a policy file where one is given."""
    place = root / "torchbenchmark" / "models"
    for name in names:
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(MODEL.replace("{body}", BODIES[name]))
    for folder in (root / "torchbenchmark", place):
        (folder / "__init__.py").write_text("")
    (place / "no_model").mkdir()
    if policy:
        file = root / "userbenchmark" / "dynamo" / "dynamobench" / "torchbench.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(policy)
    return root
