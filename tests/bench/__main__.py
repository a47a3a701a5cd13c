"""`make bench`: how fast the tool is, as ratios to alternatives measured in the same run.

``python -m tests.bench reading`` runs one part of it; the parts are the names below.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_PARTS = (
    "memory",
    "startup",
    "viewer",
    "reading",
    "rows",
    "small",
    "writing",
    "arrow",
    "features",
    "parquet",
    "convert",
    "loading",
    "readers",
    "training",
    "stats",
)


def main() -> None:
    """Run the benchmarks that were asked for, or all, and print what comes out.

    Each part has a process of its own: the peak memory of a process is at least that of the one
    which started it.
    """
    names = sys.argv[1:] or _PARTS
    if len(names) > 1:
        for name in names:
            subprocess.run([sys.executable, "-m", "tests.bench", name], check=True)
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    part = importlib.import_module(f"tests.bench.{names[0]}")
    with tempfile.TemporaryDirectory() as directory:
        if hasattr(os, "getloadavg"):
            print(f"{names[0]}: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        for result in part.run(Path(directory)):
            print(result, flush=True)


if __name__ == "__main__":
    main()
