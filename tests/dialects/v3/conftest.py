"""Commands typed in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.dialects.v3 import upload
from tests.dialects.v3.made import Said


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Type a command in a folder of its own; gives stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".steelyard").mkdir()
    for name in ("BENCHMARK_NAME", "UPLOADER_URL", upload.USERNAME, upload.PASSWORD, "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)

    def typed(*words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        found = main(list(words))
        told = capsys.readouterr()
        assert found == code, told
        return told.out, told.err

    return typed
