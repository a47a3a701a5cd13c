"""Progress bars, on a terminal only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.process import Signals

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Bars"]


class Bars:
    """One bar for each phase of a piece of work, one after the other; a context manager."""

    def __init__(self, unit: str) -> None:
        context = click.get_current_context(silent=True)
        self._signals = None if context is None else context.find_object(Signals)
        self._unit = unit
        self._phase: str | None = None
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._phase = None

    def show(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Draw how far a phase has come; a new phase gets a new bar.

        Raises:
            KeyboardInterrupt: a signal came before, and got lost in a library.
        """
        if self._signals is not None:
            self._signals.heed()
        if not sys.stderr.isatty():
            return
        if phase != self._phase:
            from tqdm import tqdm  # 20 ms that are not needed elsewhere

            self.close()
            self._phase = phase
            self._bar = tqdm(
                total=total,
                desc=phase,
                unit=self._unit,
                leave=False,
                file=sys.stderr,
                dynamic_ncols=True,
            )
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
            if note:
                self._bar.set_postfix_str(note, refresh=False)
