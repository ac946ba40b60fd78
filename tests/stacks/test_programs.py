"""Exported programs on the runtimes themselves: right ones in every form, wrong ones named, refusals, flags, and coverage."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import PROGRAM

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
OK = {"xla": 83, "iree": 78, "interpreter": 76}
"""Of 83 generated programs, those that each backend of the pinned versions runs."""
PUBLISHED_OK = {"cpu": 44, "tpu": 7, "cuda": 3, "rocm": 1}
"""Of the programs in the package jax, those that XLA's CPU backend runs, by the device that they were written for."""
BROKEN = {"tpu-tpu_Sharding-data_2025_06_30-gspmd"}
"""Written for two devices; XLA fails over it on one."""
UNABLE = r"No FFI handler registered|No registered implementation|Unbounded dynamism|can't be translated"
HOSTILE = {
    "declared": "func.func private @host.run(tensor<4xf32>) -> tensor<4xf32>\n{main}",
    "assembly": """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}} outs(%x : tensor<4xf32>) {{
  ^bb0(%a: f32):
    %r = "\\6clvm.inline_asm"(%a) <{{asm_string = "nop", constraints = "=x,x"}}> : (f32) -> f32
    linalg.yield %r : f32
  }} -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}""",
    "parameter": 'util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4xf32>\n{main}',
    "extern": "ml_program.global private mutable @w(#ml_program.extern<tensor<4xf32>>) : tensor<4xf32>\n{main}",
    "call": """util.func private @host.run(tensor<4xf32>) -> tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = util.call @host.run(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}""",
    "custom": """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = "stablehlo.custom_call"(%x) {{call_target_name = "ev\\69l"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}""",
    "tensor": """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = flow.tensor.reshape %x : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}""",
    "module": "vm.module @m {{ vm.import private @host.x(%a: i32) -> i32 }}\n{main}",
    "object": 'module attributes {{hal.executable.objects = [#hal.executable.object<{{path = "x.o"}}>]}} {{\n{main}\n}}',
}
NAMED = {
    "declared": "--allow host.run", "assembly": "--allow llvm", "parameter": "--allow util --allow flow", "object": "--allow hal",
    "extern": "--allow ml_program.extern", "call": "--allow util", "custom": "--allow evil", "tensor": "--allow flow",
    "module": "--allow vm",
}  # fmt: skip
MAIN = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


@pytest.fixture(scope="module")
def home(built: Callable[[str], str]) -> str:
    """Where the environments of JAX and IREE are."""
    places = {built(stack) for stack in ("jax", "iree")}
    assert len(places) == 1
    return places.pop()


@pytest.fixture(scope="module")
def exported(home: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of one program each, with recorded values."""
    return _written(home, "exported_programs.py", tmp_path_factory.mktemp("exported") / "programs")


def _written(home: str, script: str, folder: Path) -> Path:
    python = Path(home) / "jax" / "bin" / "python"
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SOURCES)}
    subprocess.run([str(python), str(HERE / script), str(folder)], check=True, env=env, timeout=600)
    return folder


def measured(home: str, *words: str, cwd: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Records by the folder or file of their program, and backend."""
    env = os.environ | {"STEELYARD_ENVS": home}
    done = subprocess.run(
        [*PROGRAM, "run", *words, "--budget", "0.02s", "--json"], capture_output=True, text=True, env=env, cwd=cwd, timeout=3400
    )
    assert done.returncode in (0, 3, 5), done.stderr
    records = json.loads(done.stdout)["records"]
    return {(record["case"]["params"]["path"]["name"].split("/")[0], record["case"]["backend"]): record for record in records}


def test_the_reference_interpreter_is_asked_where_it_has_not_answered(home: str, exported: Path, tmp_path: Path) -> None:
    found = measured(home, f"artifact:{exported / 'text'}", "-B", "xla,iree", "--reference", "interpreter", cwd=tmp_path)
    assert {key[1]: (record["status"], record["reason"] or record["verification"]["against"]) for key, record in found.items()} == {
        "xla": ("ok", "backend interpreter"), "iree": ("ok", "backend interpreter")
    }  # fmt: skip


def test_right_and_wrong_programs(home: str, exported: Path, tmp_path: Path) -> None:
    found = measured(home, f"artifact:{exported}", "-B", "xla,iree,interpreter", cwd=tmp_path)
    status = {key: record["status"] for key, record in found.items()}
    for name in ("text", "vhlo", "resource"):
        for backend in ("xla", "iree", "interpreter"):
            assert status[name, backend] == "ok", found[name, backend]["reason"]
            assert found[name, backend]["verification"]["against"] == "the recorded answers"
    assert status["hlo", "xla"] == "ok" and ("hlo", "iree") not in status
    right = {key[1]: record["effective"].get("reference_only", False) for key, record in found.items() if record["status"] == "ok"}
    assert right == {"xla": False, "iree": False, "interpreter": True}
    for name, words in {
        "weight": "a weight or the program itself differs", "inputs": "with inputs 0 and 1 swapped the answer is right",
        "outputs": "the outputs are recorded in another order", "last": "out[3]", "dtype": "bf16",
        "order": "output 0 is the recorded output 1, output 1 is the recorded output 0",
    }.items():  # fmt: skip
        for backend in ("xla", "iree"):
            assert status[name, backend] == "wrong", (name, backend, found[name, backend]["reason"])
            assert words in found[name, backend]["reason"]
    assert status["elided", "xla"] == "failed" and "weights are missing" in found["elided", "xla"]["reason"]
    assert status["host", "xla"] == "unsupported" and "--allow xla_ffi_python_cpu_callback" in found["host", "xla"]["reason"]
    for backend in ("xla", "iree"):
        assert status["cut", backend] == "failed", found["cut", backend]["reason"]
    for backend in ("xla", "iree"):
        metrics = found["text", backend]["metrics"]
        assert all(metrics[name]["unit"] == "s" and metrics[name]["value"] > 0 for name in ("parse_time", "compile_time"))
        assert metrics["code_size"]["unit"] == "B" and metrics["code_size"]["value"] > 0
    assert found["text", "iree"]["metrics"]["runtime_peak_memory"]["value"] > 0
    assert found["text", "iree"]["metrics"]["load_time"]["value"] > 0
    assert found["text", "xla"]["metrics"]["discarded"]["value"] == 0, "that PJRT's threads take turns with ours disturbs nothing"


def test_iree_compiles_nothing_that_is_not_known_to_compute(home: str, tmp_path: Path) -> None:
    """Bytecode of the same programs is no way round it."""
    (tmp_path / "programs").mkdir()
    for name, text in HOSTILE.items():
        (tmp_path / "programs" / f"{name}.mlir").write_text(text.format(main=MAIN))
    (tmp_path / "programs" / "harmless.mlir").write_text(MAIN)
    words = "import sys; from iree.compiler import ir; op = ir.Module.parse(open(sys.argv[1]).read(), ir.Context()).operation;"
    words += "op.write_bytecode(open(sys.argv[2], 'wb'))"
    python = Path(home) / "iree" / "bin" / "python"
    for name in ("assembly", "object"):
        (tmp_path / "plain.mlir").write_text(HOSTILE[name].format(main="").replace("stablehlo.tanh", "math.tanh"))
        subprocess.run([str(python), "-c", words, str(tmp_path / "plain.mlir"), str(tmp_path / "programs" / f"{name}.mlirbc")], check=True)
    found = measured(home, f"artifact:{tmp_path / 'programs'}", "-B", "iree", cwd=tmp_path)
    status = {key[0]: record["status"] for key, record in found.items()}
    assert status.pop("harmless.mlir") == "ok"
    assert len(status) == len(HOSTILE) + 2 and set(status.values()) == {"unsupported"}, {key: r["reason"] for key, r in found.items()}
    for (name, _), record in found.items():
        if name != "harmless.mlir":
            assert NAMED[name.partition(".")[0]] in record["reason"]


def test_an_unknown_flag_costs_its_case_alone(home: str, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "flags.toml").write_text(
        f'[[matrix]]\nworkload = "artifact:{exported / "text"}"\nbackend = ["xla", "iree"]\n'
        'flags = [{}, {XLA_FLAGS = "--xla_no_such_flag=1"}, {IREE_FLAGS = "--iree-no-such-flag"}]\n'
    )
    env = os.environ | {"STEELYARD_ENVS": home}
    words = [*PROGRAM, "run", "flags.toml", "--budget", "0.02s", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=600)
    records = json.loads(done.stdout)["records"]
    told = {(record["case"]["backend"], *record["case"]["flags"]): record for record in records}
    assert told["xla",]["status"] == told["iree",]["status"] == "ok"
    assert told["iree", "XLA_FLAGS"]["status"] == told["xla", "IREE_FLAGS"]["status"] == "ok"
    for key, flag in ((("xla", "XLA_FLAGS"), "--xla_no_such_flag"), (("iree", "IREE_FLAGS"), "iree-no-such-flag")):
        assert told[key]["status"] == "unsupported" and flag in told[key]["reason"]


def test_coverage_over_programs_that_jax_keeps_of_earlier_years(home: str, tmp_path: Path) -> None:
    """Those for a CPU run under XLA and answer what was recorded then; a device's own are unsupported by the name of what they call."""
    folder = _written(home, "published_programs.py", tmp_path / "programs")
    found = {name: record for (name, _), record in measured(home, f"artifact:{folder}", "-B", "xla", cwd=tmp_path).items()}
    status = {name: record["status"] for name, record in found.items()}
    print(json.dumps(Counter(f"{name.partition('-')[0]} {told}" for name, told in status.items())))
    assert {told for name, told in status.items() if name not in BROKEN} == {"ok", "unsupported"}
    for device, count in PUBLISHED_OK.items():
        assert sum(told == "ok" for name, told in status.items() if name.startswith(f"{device}-")) == count, status
    for name, record in found.items():
        if "_lapack_" in name or "_blas_" in name:
            against = "" if any(word in name for word in ("eig", "schur")) else "the recorded answers"
            assert (record["status"], record["verification"]["against"]) == ("ok", against), (name, record["reason"])
        elif record["status"] == "unsupported":
            assert re.search(UNABLE, record["reason"]), (name, record["reason"])
    both = [f"artifact:{path}" for path in sorted(folder.glob("*ApproxTopK*"))]
    assert [record["status"] for record in measured(home, *both, "-B", "iree", cwd=tmp_path).values()] == ["ok", "ok"]


def test_coverage_over_generated_programs(home: str, tmp_path: Path) -> None:
    """Nothing is wrong, nothing ends a worker unnamed, and backends run what they ran when this was written."""
    folder = _written(home, "stablehlo_programs.py", tmp_path / "programs")
    found = measured(home, f"artifact:{folder}", "-B", "interpreter,xla,iree", cwd=tmp_path)
    counts = {backend: Counter(record["status"] for (_, own), record in found.items() if own == backend) for backend in
              ("interpreter", "xla", "iree")}  # fmt: skip
    print(json.dumps(counts))
    bad = [(key, record["reason"]) for key, record in found.items() if record["status"] in ("wrong", "crashed", "timeout", "oom")]
    assert not bad
    assert {backend: count["ok"] for backend, count in counts.items()} == OK, [
        (key, record["reason"]) for key, record in found.items() if record["status"] != "ok"
    ]
    compared = [key for key, record in found.items() if key[1] == "iree" and record["status"] == "ok"
                and record["verification"]["status"] == "passed"]  # fmt: skip
    assert len(compared) == counts["iree"]["ok"]
