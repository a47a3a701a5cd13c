"""The exit codes of every command."""

from __future__ import annotations

import enum


class Outcome(enum.IntEnum):
    """How a command ended; the values are the exit codes."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    """Finished, but damage was found or something was left out."""
    INTERRUPTED = 130
