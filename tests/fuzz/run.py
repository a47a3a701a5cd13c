"""Running targets under atheris for some time, and what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import load_target

__all__ = ["Outcome", "fuzz"]

REPOSITORY = Path(__file__).parents[2]

_INPUT_SECONDS = 120
"""An input that takes longer than this hangs; `tests.fuzz.child` limits its CPU time."""

_GRACE_SECONDS = 300
"""For starting, reading the corpus, and ending; after that the process is killed."""

_LEAST_COVERAGE = 100
"""Places in the instrumented code; a target that reaches fewer is not guided by coverage."""

_ARTIFACTS = ("crash-*", "timeout-*", "oom-*", "leak-*")
_COVERAGE = re.compile(rb"\bcov: (\d+)")
_UNITS = re.compile(rb"stat::number_of_executed_units: (\d+)")
_PEAK = re.compile(rb"stat::peak_rss_mb: +(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of fuzzing one target.

    Attributes:
        name: the target.
        seconds: how long it was meant to take.
        runs: how many inputs were tried.
        coverage: how many places of the instrumented code were reached.
        memory: the most that the process took, in MiB.
        findings: the inputs on which something was wrong: a crash, a hang, too much memory.
        log: all that libFuzzer wrote.
        failed: whether the process ended in any other way than in time and with code 0, or reached
            too little of the code.
    """

    name: str
    seconds: int
    runs: int
    coverage: int
    memory: int
    findings: tuple[Path, ...]
    log: Path
    failed: bool


def fuzz(name: str, seconds: int, home: Path) -> Outcome:
    """Fuzz a target.

    Args:
        name: the target.
        seconds: for how long.
        home: where the corpus, the findings and the log are kept; made if it isn't there. The
            corpus grows from run to run.
    """
    target = load_target(name)
    corpus, seeds, found = home / "corpus", home / "seeds", home / "found"
    for folder in (corpus, seeds, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (seeds / f"{number:03d}").write_bytes(data)
    before = _findings(found)
    command = [
        *(sys.executable, "-m", "tests.fuzz.child", name, str(corpus), str(seeds)),
        f"-max_total_time={seconds}",
        f"-timeout={_INPUT_SECONDS}",
        f"-rss_limit_mb={target.memory}",
        f"-artifact_prefix={found}{os.sep}",
        "-print_final_stats=1",
    ]
    log = home / "log.txt"
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch,
        log.open("wb") as output,
    ):
        environment = os.environ | {"TMPDIR": scratch}
        try:
            code: int | None = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=environment,
                timeout=seconds + _GRACE_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    text = log.read_bytes()
    coverage = _last(_COVERAGE, text)
    return Outcome(
        name=name,
        seconds=seconds,
        runs=_last(_UNITS, text),
        coverage=coverage,
        memory=_last(_PEAK, text),
        findings=tuple(sorted(_findings(found) - before)),
        log=log,
        failed=code != 0 or coverage < _LEAST_COVERAGE,
    )


def _findings(folder: Path) -> set[Path]:
    return {path for pattern in _ARTIFACTS for path in folder.glob(pattern)}


def _last(pattern: re.Pattern[bytes], text: bytes) -> int:
    found = pattern.findall(text)
    return int(found[-1]) if found else 0
