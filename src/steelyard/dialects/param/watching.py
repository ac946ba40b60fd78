"""Progress while configs are measured: on a terminal, for a script, or none."""

from __future__ import annotations

from steelyard.dialects.param.expand import Mistake
from steelyard.dialects.param.lines import Line


class ConfigWatch:
    """The interface for progress; this base class shows nothing."""

    def mistake(self, mistake: Mistake) -> None:
        """Report a config that cannot run, before anything is run."""

    def warning(self, text: str) -> None:
        """Report that something was changed or left out."""

    def begun(self, count: int) -> None:
        """Report how many configs are about to be measured."""

    def started(self, id: str) -> None:
        """Report that a config starts."""

    def finished(self, line: Line) -> None:
        """Report the record of a config."""

    def waiting(self, text: str) -> None:
        """Report that another run uses the machine and this one waits until it is released."""

    def said(self, text: str) -> None:
        """Report a line that a tool printed."""

    def printed(self, text: str) -> None:
        """Report lines that a worker, or an operator in it, printed."""
