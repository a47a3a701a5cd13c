"""`make fuzz`: coverage-guided fuzzing with atheris, each target in a process of its own.

``python -m tests.fuzz`` fuzzes all targets, for FUZZ_SECONDS in all (600 if that is not set).
``python -m tests.fuzz NAME`` fuzzes one of them; ``python -m tests.fuzz NAME FILE...`` runs its
check on inputs that were kept, without atheris, and shows what is wrong with each.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fuzz.run import REPOSITORY, Outcome, fuzz
from tests.fuzz.target import TARGETS, load_target

HOME = REPOSITORY / ".fuzz"
"""Where corpora and findings are kept from run to run; git ignores it."""

_SECONDS = 600


def main(arguments: Sequence[str]) -> int:
    """Fuzz all targets or one, or run one on files; return the exit code."""
    if arguments and arguments[0] not in TARGETS:
        print(f"no such target: {arguments[0]}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if len(arguments) > 1:
        return replay(arguments[0], arguments[1:])
    if importlib.util.find_spec("atheris") is None:
        message = "fuzzing needs atheris: pip install 'tfrtool[fuzz]', on Linux (x86-64) with"
        print(f"{message} Python 3.11 to 3.13", file=sys.stderr)
        return 2
    seconds = seconds_of(os.environ)
    if seconds is None:
        return 2
    names = arguments or TARGETS
    share = max(seconds // len(names), 1)
    outcomes = []
    print(f"{'target':<12}{'runs':>10}{'seconds':>9}{'coverage':>10}{'MiB':>6}{'findings':>10}")
    for name in names:
        outcomes.append(fuzz(name, share, HOME / name))
        print(row(outcomes[-1]), flush=True)
    for outcome in outcomes:
        for line in explanation(outcome):
            print(line)
    return 1 if any(outcome.failed or outcome.findings for outcome in outcomes) else 0


def seconds_of(environment: Mapping[str, str]) -> int | None:
    """Return for how long to fuzz; None, with a message, if FUZZ_SECONDS is not a number."""
    seconds = environment.get("FUZZ_SECONDS") or str(_SECONDS)
    if seconds.isdecimal() and int(seconds):
        return int(seconds)
    print(f"FUZZ_SECONDS is a number of seconds, not {seconds!r}", file=sys.stderr)
    return None


def row(outcome: Outcome) -> str:
    """Return a line of the table."""
    found = str(len(outcome.findings)) if outcome.findings or not outcome.failed else "failed"
    return (
        f"{outcome.name:<12}{outcome.runs:>10,}{outcome.seconds:>9}{outcome.coverage:>10,}"
        f"{outcome.memory:>6,}{found:>10}"
    )


def explanation(outcome: Outcome) -> list[str]:
    """Return what was found, and how to see it again."""
    lines = []
    for path in outcome.findings:
        lines += [f"{outcome.name}: {path}", f"  python -m tests.fuzz {outcome.name} {path}"]
    if outcome.failed and not outcome.findings:
        lines.append(f"{outcome.name}: it crashed or reached too little code, see {outcome.log}")
    return lines


def replay(name: str, files: Sequence[str]) -> int:
    """Run a target's check on files, and print what it raises and how long it takes."""
    target = load_target(name)
    code = 0
    for file in files:
        data = Path(file).read_bytes()
        start = time.perf_counter()
        try:
            target.check(data)
            found = "nothing wrong"
        except Exception:  # noqa: BLE001 - whatever it is, it is the finding
            found = traceback.format_exc()
            code = 1
        print(f"{file} ({len(data)} bytes, {time.perf_counter() - start:.2f} s): {found}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
