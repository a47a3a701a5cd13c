"""Publishes a dataset again and again, and is stopped at another step each time.

``python -m tests.process.dying ROOT SIGNAL SHARDS`` expects photographs in ``ROOT/photos``, and
perhaps a dataset in ``ROOT/pets``, which it overwrites with one of so many shards. What was left
after the signal at each step is in ``ROOT/at/0``, ``ROOT/at/1`` and so on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import tfrtool
from tfrtool.records.framing import frame
from tfrtool.writing import write
from tfrtool.writing.dataset_folder import Staging
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.shard_writer import noted, payloads_of
from tfrtool.writing.write_plan import PlannedShard

__all__ = ["options_of", "plain_shards"]

STEPS = ("replace", "rename", "link", "unlink", "mkdir", "rmdir", "fsync")


def plain_shards(shards: Sequence[PlannedShard], staging: Staging, *_: Any) -> list[ShardReport]:
    """Write without TensorFlow, which takes seconds to load, and whose threads can't fork."""
    reports = []
    for shard in shards:
        payloads = payloads_of(shard.audit, shard.positions)
        data = b"".join(map(frame, payloads))
        (staging.folder / str(shard.name)).write_bytes(data)
        size, digest = sum(map(len, payloads)), hashlib.sha256(data).hexdigest()
        report = ShardReport(str(shard.name), len(payloads), len(data), size, digest)
        staging.note(noted(shard, report))
        reports.append(report)
    return reports


def options_of(root: Path, **changes: Any) -> dict[str, Any]:
    """Return the options that write the photographs of a folder."""
    given: dict[str, Any] = {
        "source": root / "photos",
        "dataset": root / "pets",
        "name": "pets",
        "splits": {"train": 0.7, "test": 0.3},
        "shards": 2,
        "workers": 1,
    }
    return given | changes


def _stop_at(step: int, number: int) -> None:
    """Have this process get a signal before a call that changes the file system."""
    counter = count()

    def call(real: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if next(counter) == step:
            os.kill(os.getpid(), number)
        return real(*arguments, **keywords)

    for name in STEPS:
        setattr(os, name, partial(call, getattr(os, name)))


def main() -> None:
    """Publish, and be stopped, at every step."""
    root, number = Path(sys.argv[1]), signal.Signals[sys.argv[2]]
    # What the system has outlives the process, and need not be waited for.
    os.fsync = lambda fd: None  # noqa: ARG005
    options = options_of(root, shards=int(sys.argv[3]), existing="overwrite")
    real, before, children = Staging.publish, root / "before", []

    def publish(*arguments: Any) -> None:
        shutil.copytree(options["dataset"], before)
        for step in count():
            process = os.fork()
            if process == 0:
                _stop_at(step, number)
                children.append(process)
                real(*arguments)
                return
            _, status = os.waitpid(process, 0)
            if status == 0:
                os._exit(0)
            if os.waitstatus_to_exitcode(status) not in (-number, 130):
                os._exit(1)
            shutil.move(options["dataset"], root / "at" / str(step))
            shutil.copytree(before, options["dataset"])

    Staging.publish = publish  # type: ignore[assignment, method-assign]
    write.write_shards = plain_shards  # type: ignore[attr-defined, assignment]
    (root / "at").mkdir()
    try:
        tfrtool.write(**options)
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0 if children else 1)


if __name__ == "__main__":
    main()
