"""Fuzzing without atheris: seeded mutations of seeds, in this process or in one with sanitizers.

``python -m tests.fuzz.mutations NAME...`` fuzzes targets for FUZZ_SECONDS in all (600 if that is
not set), in children that inherit the environment: `make fuzz` has them load the functions in C
with AddressSanitizer and UndefinedBehaviorSanitizer, whose findings end the process.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.frames_module import use_frames_module
from tests.fuzz.__main__ import HOME, seconds_of
from tests.fuzz.target import Target, load_target

_POOL = 2000
"""Inputs that are changed again; a new one takes the place of another."""

_NEW_IN = 8
"""Of this many changed inputs, one gets into the pool."""

_FOUND = 20
"""Findings after which a target is left alone."""


def main(arguments: Sequence[str]) -> int:
    """Fuzz targets, or as a child one of them; return the exit code."""
    if arguments and arguments[0] == "--child":
        return fuzz_here(arguments[1], float(arguments[2]), int(arguments[3]))
    names = arguments or ["frames"]
    seconds = seconds_of(os.environ)
    if seconds is None:
        return 2
    code, seed = 0, int(os.environ.get("FUZZ_SEED") or time.time())
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.mutations", "--child", name]
        command += [str(seconds / len(names)), str(seed)]
        ended = subprocess.run(command, check=False).returncode
        if ended not in (0, 1):  # a sanitizer, or the system, has ended it
            found = _keep(name, current_input(name).read_bytes())
            print(f"{name}: ended with code {ended} on {found}; see above")
        code = code or int(ended != 0)
    return code


def current_input(name: str) -> Path:
    """Return the file that has the input which a target is about to take."""
    return HOME / name / "current"


def fuzz_here(name: str, seconds: float, seed: int) -> int:
    """Fuzz a target in this process; return 1 if something was found."""
    use_frames_module()
    target, rng = load_target(name), random.Random(seed)
    current = current_input(name)
    current.parent.mkdir(parents=True, exist_ok=True)
    pool = [*target.seeds()]
    runs, found, start = 0, 0, time.monotonic()
    with current.open("wb", buffering=0) as file:
        while time.monotonic() - start < seconds and found < _FOUND:
            data = changed(target, rng.choice(pool), rng)
            os.pwrite(file.fileno(), data, 0)
            os.ftruncate(file.fileno(), len(data))
            runs += 1
            try:
                target.check(data)
            except Exception:  # noqa: BLE001 - whatever it is, it is the finding
                found += 1
                print(f"{name}: {_keep(name, data)}\n{traceback.format_exc()}")
            if rng.randrange(_NEW_IN) == 0:
                if len(pool) < _POOL:
                    pool.append(data)
                else:
                    pool[rng.randrange(_POOL)] = data
    current.unlink()
    print(f"{name}: {runs:,} runs in {seconds:.0f} s from seed {seed}, {found} findings")
    return int(found > 0)


def changed(target: Target, data: bytes, rng: random.Random) -> bytes:
    """Return an input of a target that is made of another one."""

    def scramble(part: bytes) -> bytes:
        return scrambled(part, rng)

    for _ in range(rng.choice((1, 1, 2, 4))):
        data = scramble(data) if target.mutate is None else target.mutate(data, rng, scramble)
    return data[: target.max_length]


def scrambled(data: bytes, rng: random.Random) -> bytes:
    """Change bytes without knowing what they mean."""
    part = bytearray(data)
    at = rng.randrange(len(part) + 1)
    match rng.randrange(6):
        case 0:
            part[at : at + 1] = bytes([rng.randrange(256)])
        case 1 if at < len(part):
            part[at] ^= 1 << rng.randrange(8)
        case 2:
            del part[at : at + rng.choice((1, 2, 8, 40))]
        case 3:
            part[at:at] = rng.randbytes(rng.choice((1, 2, 8, 40)))
        case 4:
            part[at:at] = part[at : at + rng.randrange(1, 60)]
        case _:
            part[at : at + 1] = rng.choice((b"\0", b"\x7f", b"\x80", b"\xff", b"\x0a", b"\x12"))
    return bytes(part)


def _keep(name: str, data: bytes) -> Path:
    """Store an input with which something is wrong, and return its path."""
    path = HOME / name / "found" / f"crash-{hashlib.sha256(data).hexdigest()[:16]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
