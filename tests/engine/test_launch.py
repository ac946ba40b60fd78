"""What a worker says arrives whole, however the pipe cuts it; what it finds in its environment is what was asked for."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine.launch import Worker
from steelyard.engine.place import THREAD_VARIABLES, Place
from steelyard.engine.process import MARK
from tests.engine.drive import run_json


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers()), max_size=5), st.data())
def test_messages_are_whole_wherever_they_were_cut(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    out, into = os.pipe()
    os.set_blocking(out, False)
    worker, found = Worker(0, io.StringIO(), out, io.BytesIO()), list[Any]()
    text = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    try:
        while text:
            size = data.draw(st.integers(1, len(text)))
            os.write(into, text[:size])
            text = text[size:]
            found += map(json.loads, worker.lines())
    finally:
        os.close(into)
        os.close(out)
    assert found == messages


variables = st.dictionaries(
    st.sampled_from(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH", "HOME", "X"]), st.sampled_from(["", "1", "7"])
)


@given(variables, st.integers(1, 4), variables)
def test_a_program_has_our_environment_and_what_was_asked_for(own: dict[str, str], threads: int, flags: dict[str, str]) -> None:
    with mock.patch.dict(os.environ, own, clear=True):
        found = Place(threads=threads, flags=tuple(flags.items()), programs=True).environment("mark")
        others = Place(threads=threads, flags=tuple(flags.items())).environment("mark")
    asked = dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads > 1 else {}
    assert found == {**own, MARK: "mark", **asked, **flags}
    assert {name: others[name] for name in THREAD_VARIABLES} == {name: flags.get(name, str(threads)) for name in THREAD_VARIABLES}


@pytest.mark.parametrize(("words", "threads"), [((), "7"), (("--threads", "1"), "1"), (("--threads", "3"), "3")])
def test_programs_import_what_lies_beside_them_and_keep_their_threads(
    words: tuple[str, ...], threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "main.py").write_text("import beside, os; open('said', 'w').write(os.environ['OMP_NUM_THREADS'])")
    (record,) = run_json(*words, "--runs", "1", "--", "python3", "main.py", cwd=tmp_path)["records"]
    assert record["status"] == "ok" and (tmp_path / "said").read_text() == threads
