"""`steelyard artifacts` on what people mistype, what networks cut, what disks have no room for, and what somebody made to hurt."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from steelyard.artifacts import arrays, manifest, remote
from steelyard.artifacts.manifest import ArtifactSet, Producer
from steelyard.cli.main import main
from steelyard.errors import FAILED, INTERRUPTED, NOTHING, PASS, USAGE
from steelyard.files import no_room
from tests.artifacts.made import small
from tests.artifacts.serving import Served, serving
from tests.engine.drive import PROGRAM, start, steelyard

Words = list[str]
MIB = 2**20


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without environments whose cache is its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("STEELYARD_ENVS", str(tmp_path / "envs"))
    return tmp_path


def heavy(folder: Path, size: int) -> ArtifactSet:
    """One file of random bytes, and its manifest."""
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(np.random.default_rng(1).bytes(size))
    held = ArtifactSet("heavy", Producer("jax", "x"), files=(manifest.entry(folder, "model.bin"),))
    manifest.write(folder, held)
    return held


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("mak x", "did you mean make?"), ("make model/mlp", "missing option '-o'"), ("make -o out", "missing argument"),
        ("make model/mpl -o out", "did you mean model/mlp"), ("make nothing.toml -o out", "no such file"),
        ("make model/mlp -o out --only stablehlo", "did you mean stablehlo_mlir"),
        ("make model/mlp -o out -a dtype=fp17", "did you mean fp16"),
        ("make model/mlp -o out -a siz=small", "no axis named 'siz'"), ("make model/mlp -o out -B jx", "did you mean jax"),
        ("make model/mlp -o out -B numpy", "jax, tensorflow, torch"),
        ("make model/mlp -o out --env nosuch", "no environment named 'nosuch'"),
        ("make model/mlp -o out --timeout soon", "not a time"), ("make model/mlp -o file", "cannot write to file"),
        ("list gone", "there is no folder gone"), ("show gone", "there is no folder gone"), ("verify empty", "no artifacts in empty"),
        ("publish gone store", "there is no folder gone"), ("publish empty store", "no artifacts in empty"),
        ("publish good http://127.0.0.1/x", "nothing can be written to http"), ("publish good nosuch://x", "not an address"),
        ("publish good file", "Not a directory"),
        ("fetch gone", "no artifacts at gone"), ("fetch nosuch://x", "not an address"),
        ("fetch http://127.0.0.1:1/x", "check the address and the network"), ("fetch good#sha256=beef", "is not a sha256"),
        ("fetch good -o file", "cannot write file"), ("reduce artifact:gone.mlir -B xla -o bug", "no such file"),
        ("reduce op/softmax -o bug", "is not an exported program"),
        ("reduce artifact:good -B xla,iree -o bug", "not a backend name: 'xla,iree'"),
        ("reduce artifact:good -B xla -o bug --vs eager", "cannot be the base of an exported program"),
        ("reduce artifact:good -B xla -o bug --time-limit soon", "not a time"), ("reduce artifact:good -B xla", "missing option '-o'"),
    ],
)  # fmt: skip
def test_wrong_words_are_told_and_leave_nothing(words: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(here / "good", "good")
    (here / "empty").mkdir()
    (here / "file").write_text("mine")
    assert main(["artifacts", *words.split()]) == USAGE
    said = capsys.readouterr()
    assert told in said.err and "Traceback" not in said.err and not said.out, said.err
    assert (here / "file").read_text() == "mine"
    assert not any((here / name).exists() for name in ("out", "bug", "store", "artifacts"))


def test_a_framework_that_is_not_here_is_named_with_what_brings_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["artifacts", "make", "model/mlp", "-a", "size=small", "-B", "jax", "-o", "out"]) == NOTHING
    assert "steelyard env create jax" in capsys.readouterr().out
    assert list((here / "out").iterdir()) == []


def _archive(path: Path, name: str) -> str:
    """An archive with a member of that name; answers its hash."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(name, b"x")
    else:
        with tarfile.open(path, "w:gz") as archive:
            arrays.add(archive, name, b"x")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _linked(path: Path, target: str) -> str:
    with tarfile.open(path, "w:gz") as archive:
        item = tarfile.TarInfo("model.mlir")
        item.type, item.linkname = tarfile.SYMTYPE, target
        archive.addfile(item)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bomb(path: Path) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("zeros", "w", force_zip64=True) as file:
        for _ in range(300):
            file.write(bytes(MIB))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("up.tgz", lambda path: _archive(path, "../out.txt"), "leads out of its folder"),
        ("deep.zip", lambda path: _archive(path, "a/../../out.txt"), "leads out of its folder"),
        ("root.zip", lambda path: _archive(path, "/tmp/out.txt"), "leads out of its folder"),
        ("link.tgz", lambda path: _linked(path, "/etc/passwd"), "is a link or a device"),
        ("bomb.zip", _bomb, "unpacks to more than"),
        ("none.tgz", lambda path: _archive(path, "readme.txt"), "has no artifacts"),
        ("other.tgz", lambda path: _archive(path, "x") and "0" * 64, "is not the expected file"),
        ("bare.tgz", lambda path: _archive(path, "x") and "", "has no hash"),
        ("cut.tgz", lambda path: _shortened(path), "cut off"),
    ],
)  # fmt: skip
def test_an_archive_that_cannot_be_trusted_is_refused(
    name: str, make: Callable[[Path], str], told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "site").mkdir()
    digest = make(here / "site" / name)
    with serving(here / "site") as site:
        assert main(["artifacts", "fetch", f"{site.url}/{name}{f'#sha256={digest}' if digest else ''}", "-o", "got/here"]) == USAGE
    said = capsys.readouterr()
    assert told in said.err and not said.out, said.err
    assert not list(here.rglob("out.txt")) and not list(here.glob("got/here/*"))


def _shortened(path: Path) -> str:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        arrays.add(archive, "a/manifest.json", bytes(50_000))
    path.write_bytes(whole.getvalue()[:-30])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _swap(folder: Path) -> None:
    """Same length, other bytes."""
    path = folder / "stablehlo.mlir"
    path.write_bytes(path.read_bytes()[:-1] + b" ")


def _skew(folder: Path) -> None:
    """Bytecode under the name of text, and a manifest that says so."""
    path = folder / "stablehlo.mlir"
    path.write_bytes(b"ML\xefR\rMLIR23.0.0git\0" + bytes(20))
    data = json.loads((folder / manifest.NAME).read_text())
    for item in data["files"]:
        if item["path"] == path.name:
            item |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (folder / manifest.NAME).write_text(json.dumps(data))


def _dtype(folder: Path) -> None:
    path = folder / manifest.NAME
    path.write_text(path.read_text().replace('"bf16"', '"fp31"'))


def _escape(folder: Path) -> None:
    path = folder / manifest.NAME
    path.write_text(path.read_text().replace('"stablehlo.mlir"', '"../../passwd"'))


DAMAGE: dict[str, tuple[Callable[[Path], None], str, int, str]] = {
    "changed": (_swap, "its sha256 is", PASS, "is not the expected file"),
    "gone": (lambda folder: (folder / "stablehlo.mlir").unlink(), "is missing", PASS, "there is no"),
    "cut": (lambda folder: (folder / "outputs_npy.tgz").write_bytes(b"x"), "has 1 bytes, not", PASS, "has 1 bytes, not"),
    "skew": (_skew, "is declared as text, but is bytecode by MLIR 23.0.0git", PASS, "is declared as text, but is bytecode"),
    "dtype": (_dtype, "no dtype named 'fp31'", USAGE, "no dtype named 'fp31'"),
    "path": (_escape, "'../../passwd' is not a plain name", USAGE, "'../../passwd' is not a plain name"),
}
"""Of a folder: what was done to it, what `verify` says, the code of `list`, and what `fetch` says of it."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_told_by_every_command(damage: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bend, verified, listed, fetched = DAMAGE[damage]
    small(here / "site" / "a", "a")
    bend(here / "site" / "a")
    assert main(["artifacts", "verify", "site"]) == FAILED
    assert verified in capsys.readouterr().out
    assert main(["artifacts", "list", "site"]) == listed
    capsys.readouterr()
    assert main(["artifacts", "publish", "site", "store"]) == USAGE
    assert "Traceback" not in capsys.readouterr().err and not (here / "store").exists()
    with serving(here / "site") as site:
        assert main(["artifacts", "fetch", f"{site.url}/a", "-o", "got"]) == USAGE
    said = capsys.readouterr().err
    assert fetched in said and "Traceback" not in said, said
    assert not list(here.glob("got/*"))


def test_a_download_that_is_interrupted_goes_on_where_it_was(here: Path) -> None:
    """The first piece is here when the second does not come."""
    heavy(here / "site" / "heavy", 9 * MIB)
    with serving(here / "site", stall=f"bytes={8 * MIB}-") as site:
        words = ["artifacts", "fetch", f"{site.url}/heavy", "-o", "got"]
        running = start(*words, cwd=here)
        assert site.stalled.wait(60)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        assert running.returncode == INTERRUPTED and "interrupted" in said and "Traceback" not in said, said
        assert not list(here.glob("got/*"))
        site.stall = ""
        site.go.set()
        assert _asked(site, lambda: steelyard(*words, cwd=here)) == [f"bytes={8 * MIB}-{9 * MIB - 1}"]
    assert manifest.check(here / "got" / "heavy", manifest.read(here / "got" / "heavy")) == []


def _asked(site: Served, act: Callable[[], object]) -> list[str]:
    before = len(site.asked)
    act()
    return [span for path, span in site.asked[before:] if path.endswith("model.bin")]


def limited(*words: str, most: int, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command on a disk where no file can be larger."""
    return subprocess.run(
        [*PROGRAM, *words], cwd=cwd, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )  # fmt: skip


def test_a_disk_without_room_is_no_fault_of_the_network(here: Path) -> None:
    """What came is kept, and asked for no second time once there is room."""
    heavy(here / "site" / "heavy", 3 * MIB)
    with serving(here / "site") as site:
        words = ["artifacts", "fetch", f"{site.url}/heavy", "-o", "got"]
        done = limited(*words, most=MIB, cwd=here)
        assert done.returncode == USAGE and "was cut" not in done.stderr
        assert "error: cannot write" in done.stderr and f"free space there, or set {remote.CACHE}" in done.stderr
        assert not list(here.glob("got/*"))
        assert _asked(site, lambda: steelyard(*words, cwd=here)) == [f"bytes={MIB}-{3 * MIB - 1}"]
    done = limited("artifacts", "publish", "got/heavy", "store", most=MIB, cwd=here)
    assert done.returncode == USAGE and "run the same command again to go on" in done.stderr
    assert not (here / "store" / "heavy" / manifest.NAME).exists(), "a folder that is not whole must not be read as one"
    steelyard("artifacts", "publish", "got/heavy", "store", cwd=here)
    assert manifest.check(here / "store" / "heavy", manifest.read(here / "store" / "heavy")) == []


def test_little_room_is_told_with_what_to_do(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_room(here / "out") == "" and no_room(here) == ""
    monkeypatch.setattr("steelyard.files.SCARCE", shutil.disk_usage(here).total + 1)
    assert "left: make room, and run the same command again" in no_room(here)


@pytest.mark.torch
@pytest.mark.deep
def test_making_that_is_interrupted_keeps_what_is_whole_and_goes_on(here: Path) -> None:
    words = ["artifacts", "make", "model/mlp", "model/bert", "-a", "size=small", "-B", "torch", "-o", "out", "--only", "torch_export"]
    running = start(*words, cwd=here)
    while not list(here.glob("out/model_*/manifest.json")) and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == INTERRUPTED and "interrupted" in said and "Traceback" not in said, said
    whole = sorted(path.name for path in (here / "out").iterdir())
    assert [name.split("_torch_")[0] for name in whole] == ["model_mlp"]
    found = json.loads(steelyard(*words, "--json", cwd=here).stdout)
    assert [(item["name"].split("_torch_")[0], item["status"]) for item in found] == [("model_mlp", "kept"), ("model_bert", "made")]
    assert json.loads(steelyard("artifacts", "verify", "out", "--json", cwd=here).stdout) == {f"out/{item['name']}": [] for item in found}
