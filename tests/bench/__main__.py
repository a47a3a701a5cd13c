"""`make bench`: how fast the tool is, as ratios to alternatives measured in the same run.

``python -m tests.bench reading`` runs one part of it; the parts are the names below.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.bench import memory, reading, writing

_PARTS = {"reading": reading.run, "memory": memory.run, "writing": writing.run}


def main() -> None:
    """Run the benchmarks that were asked for, or all, and print what comes out."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in sys.argv[1:] or _PARTS:
        with tempfile.TemporaryDirectory() as directory:
            for result in _PARTS[name](Path(directory)):
                print(result, flush=True)


if __name__ == "__main__":
    main()
