"""Progress bars, on a terminal only."""

import sys
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.process import Signals
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tqdm import tqdm


class Bars:
    """Draws the `Progress` of a verb, a bar for each phase: ``with Bars() as bars:``.

    It is itself what verbs take: ``verify(shards, on_progress=bars)``.
    """

    def __init__(self) -> None:
        context = click.get_current_context(silent=True)
        self._signals = None if context is None else context.find_object(Signals)
        self._phase: str | None = None
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, progress: Progress) -> None:
        """Draw how far a phase has come; a new phase gets a new bar."""
        if self._signals is not None:
            self._signals.heed()
        if not sys.stderr.isatty():
            return
        if self._bar is None or progress.what != self._phase:
            from tqdm import tqdm  # 20 ms that are not needed elsewhere

            self.close()
            self._phase = progress.what
            self._bar = tqdm(
                total=progress.total,
                desc=progress.what,
                unit=progress.unit if progress.unit == "B" else f" {progress.unit}",
                unit_scale=progress.unit == "B",
                leave=False,
                file=sys.stderr,
                dynamic_ncols=True,
            )
        self._bar.update(progress.done - self._bar.n)
        if progress.note:
            self._bar.set_postfix_str(progress.note, refresh=False)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
