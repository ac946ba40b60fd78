"""What a user names is a plain file of bounded size, or it is refused with the reason and with what reads it nevertheless."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import files
from steelyard.errors import SteelyardError, UsageError
from steelyard.files import TooLarge


def test_a_file_at_its_limit_is_read_and_one_beyond_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a" * 100)
    assert files.read_whole(path, 100) == b"a" * 100
    with pytest.raises(TooLarge, match="100 bytes, and at most 99 bytes are read"):
        files.read_whole(path, 99)


def test_a_file_that_hides_its_size_is_bounded_too() -> None:
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        files.read_whole(Path("/proc/self/status"), 10)


def test_the_words_of_a_refusal_make_the_next_try_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"#" * (files.CONFIG + 1))
    with pytest.raises(TooLarge) as told:
        files.read_text(path)
    name, _, size = told.value.do.rpartition(" ")[2].partition("=")
    monkeypatch.setenv(name, size)
    assert len(files.read_text(path)) == files.CONFIG + 1


def test_a_limit_that_is_no_size_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.VARIABLE, "plenty")
    with pytest.raises(UsageError, match="STEELYARD_MAX_FILE='plenty' is not a size"):
        files.limit(1)


def made(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "name":
        path = tmp_path / ("a" * 300)
    elif kind == "zero":
        path = tmp_path / "a\0b"
    return path


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device", "name", "zero", "nothing"])
def test_what_is_no_file_is_refused_and_never_waited_for(kind: str, tmp_path: Path) -> None:
    path = made(tmp_path, kind)
    with pytest.raises(OSError):
        files.open_plain(path)
    with pytest.raises(UsageError, match=r"cannot read|no such file"):
        files.read_text(path)


def test_the_nearest_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "bench.toml").touch()
    with pytest.raises(UsageError, match=r"did you mean bench\.toml\?"):
        files.read_text(tmp_path / "bensh.toml")


@given(text=st.text(max_size=400) | st.text("~/a.", max_size=300).map(lambda text: "~" + text))
def test_any_text_names_a_file_or_nothing(text: str) -> None:
    path = files.existing(text)
    assert path is None or stat.S_IFMT(path.stat().st_mode)


@given(text=st.text("~ab/.", min_size=1, max_size=40))
def test_a_place_is_expanded_or_its_user_is_told(text: str) -> None:
    try:
        assert not str(files.expanded(text, "the store")).startswith("~/")
    except SteelyardError as error:
        assert error.exit_code == 2 and "no home folder" in error.why


@given(content=st.binary(max_size=200), most=st.integers(1, 50))
def test_lines_are_the_file_as_far_as_none_is_too_long(content: bytes, most: int) -> None:
    held = io.BytesIO(content).readlines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(files.VARIABLE, str(most))
        try:
            assert list(files.lines(io.BytesIO(content), "x")) == held and all(len(line) <= most for line in held)
        except TooLarge as error:
            assert any(len(line) > most for line in held) and error.what.startswith("line ")


def test_json_of_very_many_small_values_is_refused() -> None:
    files.check_values(b'{"text": "' + b"a" * 5000 + b'"}', 1000, "x")
    with pytest.raises(TooLarge, match="x holds too many values"):
        files.check_values(b"[" + b"[]," * 100 + b"1]", 1000, "x")
