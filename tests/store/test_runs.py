"""A run must hold exactly what was measured, whatever happened while it was written."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from steelyard.errors import StoreError, UsageError
from steelyard.model.record import Attachment
from steelyard.store import runs
from steelyard.store.runs import ALPHABET, Header, Store, read_run
from tests.store.made import arrays, case, filled, pair, python, record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / ".steelyard")


def test_a_run_is_read_back_as_it_was_written(store: Store) -> None:
    header = Header(version="1", command=["run"], experiment="e", settings={"seed": 1}, fingerprint="f", cases=[case(1)], parent="k3f9")
    with store.create(header) as writer:
        first = writer.append(record(1), {**arrays(1, 2, 3), "calls": ("1", "<i4", b"\1\0\0\0")})
        second = writer.append(record(2, "oom"))
        third = writer.append_pair(pair(2), arrays(4))
        seal = writer.seal("complete")
    run = store.open(writer.id)
    assert run.header == replace(header, id=writer.id, created=run.header.created)
    assert (run.records, run.pairs, run.seal, run.warnings) == ((first, second), (third,), seal, ())
    assert (seal.records, seal.pairs, seal.counts) == (2, 1, {"ok": 1, "oom": 1})
    np.testing.assert_array_equal(run.array(first.samples[0]), [1, 2, 3])
    np.testing.assert_array_equal(run.array(first.samples[1]), np.array([1], np.int32))
    np.testing.assert_array_equal(run.array(third.samples[0]), [4])


def test_the_layout_is_the_documented_one(store: Store) -> None:
    run = filled(store, created="2026-01-02T04:04:05+01:00")
    assert run.path == store.root / "runs" / f"20260102T030405-{run.id}"
    assert sorted(path.name for path in run.path.iterdir()) == ["run.jsonl", "samples.bin"]
    assert len(run.id) == 4
    assert set(run.id) <= set(ALPHABET)
    lines = (run.path / "run.jsonl").read_text().splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == ["header", "record", "record", "record", "seal"]


def test_an_id_is_given_once_and_grows_when_short_ones_run_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "ALPHABET", "a")
    ids = [filled(store, 0).id for _ in range(3)]
    assert ids == ["aaaa", "aaaaa", "aaaaaa"]
    assert filled(store, 0, id="k3f9").id == "k3f9"
    with pytest.raises(StoreError, match="taken"):
        store.create(Header(id="k3f9"))
    with pytest.raises(StoreError, match="not an id"):
        store.create(Header(id="../.."))


def test_nothing_follows_a_seal_or_a_close(store: Store) -> None:
    with store.create(Header()) as writer:
        writer.seal()
        with pytest.raises(StoreError, match="sealed"):
            writer.append(record(1), arrays(1))
    with store.create(Header()) as writer:
        pass
    with pytest.raises(StoreError, match="closed"):
        writer.append(record(1), arrays(1))


def test_attachments_stay_in_the_run(store: Store) -> None:
    with store.create(Header()) as writer:
        kept = [writer.attach("log", name, b"text") for name in ("../../etc/passwd", "a b.txt", "a b.txt", "", "x" * 300 + ".json")]
    assert [item.path for item in kept[:4]] == [
        "attachments/etc_passwd",
        "attachments/a_b.txt",
        "attachments/a_b-2.txt",
        "attachments/file",
    ]
    assert len(kept[4].path) < 100
    run = store.open(writer.path)
    for item in kept:
        assert run.attachment(item).read_bytes() == b"text"
        assert item.sha256 == hashlib.sha256(b"text").hexdigest()
    with pytest.raises(StoreError, match="outside"):
        run.attachment(Attachment("log", "../../secret", ""))


def test_the_store_is_named_or_the_nearest_upwards_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEELYARD_STORE", raising=False)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert Store.find(deep).root == deep / ".steelyard"
    (tmp_path / "a" / ".steelyard").mkdir()
    assert Store.find(deep).root == tmp_path / "a" / ".steelyard"
    monkeypatch.setenv("STEELYARD_STORE", str(tmp_path / "env"))
    assert Store.find(deep).root == tmp_path / "env"
    assert Store.find(deep, str(tmp_path / "named")).root == tmp_path / "named"


def test_runs_are_listed_newest_first_and_a_broken_one_with_its_reason(store: Store) -> None:
    old = filled(store, created="2026-01-01T00:00:00Z")
    new = filled(store, seal=False, created="2026-01-03T00:00:00Z")
    broken = store.folder / "20260102T000000-bad2"
    broken.mkdir()
    (store.folder / "notes.txt").write_text("not a run")
    empty = store.folder / "whatever"
    empty.mkdir()
    (empty / "run.jsonl").write_bytes(b"\0\xff\n")
    listed = store.runs()
    assert [info.id for info in listed] == [new.id, "bad2", old.id, "whatever"]
    assert [info.sealed for info in listed] == [False, False, True, False]
    assert [info.readable for info in listed] == [True, False, True, False]
    assert listed[0].counts == listed[2].counts == {"ok": 3}
    assert listed[0].experiment == "made"
    assert "bad2" in listed[1].warning
    assert Store(store.root / "none").runs() == []


def test_a_damaged_line_is_skipped_by_name_and_the_rest_is_read(store: Store) -> None:
    run = filled(store)
    file = run.path / "run.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    newer = lines[2].replace(b'"schema":1', b'"schema":99')
    file.write_bytes(b"".join([lines[0], b'{"rec\0rd":\n', b'{"other":{}}\n', newer, b"\n", *lines[3:]]))
    again = read_run(run.path)
    assert [item.id for item in again.records] == [case(3)]
    assert again.seal == run.seal
    assert "2 of 3 records are missing from this file" in again.warnings[0]
    assert [warning.split()[0].rpartition(":")[2] for warning in again.warnings[1:]] == ["2", "3", "4"]
    assert "upgrade steelyard" in again.warnings[3]


def test_a_newer_header_asks_for_an_upgrade(store: Store) -> None:
    run = filled(store)
    file = run.path / "run.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"schema":1', b'"schema":2'))
    with pytest.raises(StoreError, match="upgrade steelyard"):
        read_run(run.path)
    assert "upgrade steelyard" in store.runs()[0].warning


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1), seal=st.booleans())
@example(share=0.97, seal=True)
@example(share=1.0, seal=True)
def test_a_run_cut_at_any_byte_goes_on_with_each_case_once(tmp_path: Path, share: float, seal: bool) -> None:
    store = Store(tmp_path / hashlib.sha256(repr((share, seal)).encode()).hexdigest()[:12])
    run = filled(store, 4, seal)
    file = run.path / "run.jsonl"
    data = file.read_bytes()
    cut = data[: int(share * len(data))]
    file.write_bytes(cut)
    lines = [
        number for number, line in enumerate(data.splitlines()) if len(b"\n".join(data.split(b"\n")[: number + 1])) <= len(cut) and line
    ]
    if 0 not in lines:
        with pytest.raises(StoreError, match="no readable header"):
            read_run(run.path)
        assert store.resume("f") is None
        return
    complete = [number for number in lines if 1 <= number <= 4]
    assert [item.id for item in read_run(run.path).records] == [case(number) for number in complete]
    if 5 in lines:
        assert store.resume("f") is None
        return
    with store.resume("f") or pytest.fail("nothing to resume") as writer:
        assert list(writer.done) == [case(number) for number in complete]
        for number in range(1, 5):
            if case(number) not in writer.done:
                writer.append(record(number), arrays(number, 0.5))
        writer.seal()
    whole = read_run(run.path)
    assert whole.warnings == ()
    assert [item.id for item in whole.records] == [case(number) for number in range(1, 5)]
    assert [whole.array(item.samples[0])[0] for item in whole.records] == [1, 2, 3, 4]
    assert whole.seal is not None
    assert whole.seal.counts == {"ok": 4}


def test_a_torn_line_is_a_warning_for_reader_and_writer(store: Store) -> None:
    run = filled(store, seal=False)
    with (run.path / "run.jsonl").open("ab") as file:
        file.write(b'{"record":{"id":"op/')
    assert "run.jsonl:5 is cut off" in read_run(run.path).warnings[0]
    with store.resume("f") or pytest.fail("nothing to resume") as writer:
        assert "is cut off" in writer.warnings[0]
    assert read_run(run.path).warnings == ()


def test_resume_takes_the_newest_unsealed_run_of_the_same_fingerprint(store: Store) -> None:
    older = filled(store, seal=False, created="2026-01-01T00:00:00Z")
    newer = filled(store, seal=False, created="2026-01-02T00:00:00Z")
    filled(store, seal=True, created="2026-01-03T00:00:00Z")
    assert store.resume("other") is None
    with store.resume("f") or pytest.fail("nothing") as first, store.resume("f") or pytest.fail("nothing") as second:
        assert (first.id, second.id) == (newer.id, older.id)
        assert store.resume("f") is None
        with pytest.raises(UsageError, match="being written by another process"):
            store.resume("f", newer.id)
    with store.resume(ref=older.id) or pytest.fail("nothing") as writer:
        assert writer.id == older.id


def test_a_sealed_or_foreign_run_is_not_resumed(store: Store) -> None:
    sealed, unsealed = filled(store), filled(store, seal=False)
    with pytest.raises(UsageError, match="is sealed"):
        store.resume("f", sealed.id)
    with pytest.raises(UsageError, match="another experiment"):
        store.resume("g", unsealed.id)


def test_a_lost_or_short_sidecar_says_so(store: Store) -> None:
    run = filled(store, seal=False)
    sidecar = run.path / "samples.bin"
    sidecar.write_bytes(sidecar.read_bytes()[:20])
    assert run.array(run.records[0].samples[0])[0] == 1
    with pytest.raises(StoreError, match="cut short"):
        run.array(run.records[1].samples[0])
    with pytest.raises(StoreError, match="shorter than its records"):
        store.resume("f", run.id)
    assert store.resume("f") is None
    sidecar.unlink()
    with pytest.raises(StoreError, match="missing"):
        run.array(run.records[0].samples[0])
    with pytest.raises(StoreError, match="description of samples"):
        run.array(replace(run.records[0].samples[0], dtype="O"))


def test_samples_of_no_known_kind_are_refused(store: Store) -> None:
    with store.create(Header()) as writer:
        with pytest.raises(StoreError, match="cannot be kept as"):
            writer.append(record(1), {"time": ("s", "object", b"")})
        with pytest.raises(StoreError, match="not a whole number"):
            writer.append(record(1), {"time": ("s", "<f8", b"123")})
    assert read_run(writer.path).records == ()


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/none")):
        with pytest.raises(StoreError, match="--store DIR"):
            Store(root).create(Header())


def test_a_full_disk_under_the_samples_loses_nothing_before_it(store: Store) -> None:
    with store.create(Header(fingerprint="f")) as writer:
        writer.append(record(1))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
        try:
            with pytest.raises(StoreError, match=r"File too large(.|\n)*free space(.|\n)*--store DIR"):
                writer.append(record(2), arrays(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert list(writer.done) == [case(1)]
        writer.append(record(3))
    assert [item.id for item in read_run(writer.path).records] == [case(1), case(3)]


def test_a_full_disk_under_the_results_leaves_whole_lines(store: Store) -> None:
    code = """
import resource, sys
from pathlib import Path
from steelyard.errors import StoreError
from steelyard.store.runs import Header, Store
from tests.store.made import arrays, record
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
writer = Store(Path(sys.argv[1])).create(Header(fingerprint="f"))
kept = 0
try:
    while True:
        writer.append(record(kept + 1), arrays(kept + 1, 0.5))
        kept += 1
except StoreError as error:
    assert "File too large" in str(error) and "--store DIR" in str(error), error
try:
    writer.attach("log", "big.txt", bytes(4000))
except StoreError:
    print(kept, len(list((writer.path / "attachments").iterdir())))
"""
    kept, attached = map(int, (python(code, store.root, wait=False).communicate(timeout=60)[0]).split())
    run = read_run(store.folders()[0])
    assert kept >= 2
    assert attached == 0
    assert (run.warnings, len(run.records)) == ((), kept)
    assert (run.path / "run.jsonl").read_bytes().endswith(b"}\n")
    with store.resume("f") or pytest.fail("nothing to resume") as writer:
        last = writer.append(record(kept + 1), arrays(kept + 1, 0.5))
    assert read_run(run.path).array(last.samples[0])[0] == kept + 1


def test_two_processes_write_two_runs_of_one_store(store: Store) -> None:
    code = """
import sys
from pathlib import Path
from steelyard.store.runs import Store
from tests.store.made import filled
print(filled(Store(Path(sys.argv[1])), 20).id)
"""
    both = [python(code, store.root, wait=False) for _ in range(2)]
    ids = {process.communicate(timeout=60)[0].strip() for process in both}
    assert len(ids) == 2
    for id in ids:
        run = store.open(id)
        assert [item.id for item in run.records] == [case(number) for number in range(1, 21)]
        assert [run.array(item.samples[0])[0] for item in run.records] == list(range(1, 21))


def test_kill_at_any_moment_loses_at_most_the_case_that_ran(store: Store) -> None:
    code = """
import sys
from pathlib import Path
from steelyard.store.runs import Header, Store
from tests.store.made import arrays, record
store = Store(Path(sys.argv[1]))
writer = store.resume("f") or store.create(Header(fingerprint="f"))
number = len(writer.done)
while True:
    number += 1
    writer.append(record(number), arrays(*range(number, number + 200)))
    print(number, flush=True)
"""
    for round in range(1, 4):
        process = python(code, store.root, wait=False)
        assert process.stdout is not None
        while (acknowledged := int(process.stdout.readline())) < 7 * round:
            pass
        os.kill(process.pid, signal.SIGKILL)
        with process:
            rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        run = read_run(store.folders()[0])
        assert len(run.records) in (acknowledged, acknowledged + 1)
        assert [item.id for item in run.records] == [case(number) for number in range(1, len(run.records) + 1)]
        assert [run.array(item.samples[0])[0] for item in run.records] == list(range(1, len(run.records) + 1))
    assert len(store.folders()) == 1


def test_a_sidecar_that_leads_elsewhere_is_neither_read_nor_written(store: Store, tmp_path: Path) -> None:
    run = filled(store, seal=False)
    precious = tmp_path / "precious"
    precious.write_bytes(b"\0" * 1000)
    (run.path / "samples.bin").unlink()
    (run.path / "samples.bin").symlink_to(precious)
    with pytest.raises(StoreError, match="is outside its folder"):
        run.array(run.records[0].samples[0])
    with pytest.raises(StoreError, match="is outside its folder"):
        store.resume("f", run.id)
    with store.create(Header()) as writer:
        (writer.path / "samples.bin").symlink_to(precious)
        (writer.path / "attachments").symlink_to(tmp_path)
        with pytest.raises(StoreError, match="is outside its folder"):
            writer.append(record(1), arrays(1.0))
        with pytest.raises(StoreError, match="is outside its folder"):
            writer.attach("log", "x.txt", b"x")
    assert precious.read_bytes() == b"\0" * 1000 and not (tmp_path / "x.txt").exists()


def test_a_run_file_that_leads_elsewhere_is_not_written(store: Store, tmp_path: Path) -> None:
    run = filled(store, seal=False)
    moved = (run.path / "run.jsonl").rename(tmp_path / "moved.jsonl")
    (run.path / "run.jsonl").symlink_to(moved)
    before = moved.read_bytes()
    with pytest.raises(StoreError, match="cannot resume"):
        store.resume("f", run.id)
    assert moved.read_bytes() == before
