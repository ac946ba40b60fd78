"""Progress while configs are measured: on a terminal, for a script, or none."""

from __future__ import annotations

from steelyard.dialects.param.expand import Mistake
from steelyard.dialects.param.lines import Line


class ConfigWatch:
    """The interface for progress; this base class shows nothing."""

    def mistake(self, mistake: Mistake) -> None:
        """Report a config that cannot run, before anything is run."""

    def warning(self, text: str) -> None:
        """Something was changed or left out."""

    def begun(self, count: int) -> None:
        """So many configs are about to be measured."""

    def started(self, id: str) -> None:
        """A config begins."""

    def finished(self, line: Line) -> None:
        """Called when a record is there."""

    def waiting(self, text: str) -> None:
        """Another run has the machine, and nothing happens until it releases it."""

    def said(self, text: str) -> None:
        """A tool printed something."""

    def printed(self, text: str) -> None:
        """A worker had printed a line, or an operator in it."""
