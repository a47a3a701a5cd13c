"""How long something takes."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Runs from the moment that it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        """Seconds that passed."""
        return time.perf_counter() - self._wall

    @property
    def cpu(self) -> float:
        """Seconds that the cores worked for this process, those of all its threads added up."""
        return time.process_time() - self._cpu
