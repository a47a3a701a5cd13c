"""One target under atheris, in a process of its own: ``python -m tests.fuzz.child NAME FLAGS...``.

``atheris.Fuzz`` never returns. The flags are libFuzzer's (https://llvm.org/docs/LibFuzzer.html).
"""

from __future__ import annotations

import random
import sys
import time

import atheris

from tests.fuzz.target import Target, load_target

_CPU_SECONDS = 10.0
"""An input for which this process works longer is a finding; most take a few milliseconds.

It is not wall time, which other processes of a busy machine make longer.
"""


class TooSlowError(Exception):
    """An input takes too long."""


def main(name: str, flags: list[str]) -> None:
    """Fuzz a target until libFuzzer ends."""
    # Modules are instrumented as they are imported, most of them by the first input.
    with atheris.instrument_imports(include=["tfrtool"]):
        target = load_target(name)
        target.check(b"")  # what starts with the first input doesn't count as its time
        _fuzz(target, flags)


def _fuzz(target: Target, flags: list[str]) -> None:
    mutate = target.mutate

    def mutated(data: bytes, max_size: int, seed: int) -> bytes:
        def scramble(part: bytes) -> bytes:
            return bytes(atheris.Mutate(part, max(len(part) + 64, 1)))

        if mutate is None:
            return scramble(data)[:max_size]
        return mutate(data, random.Random(seed), scramble)[:max_size]

    def check(data: bytes) -> None:
        start = time.process_time()
        target.check(data)
        if (seconds := time.process_time() - start) > _CPU_SECONDS:
            raise TooSlowError(f"{seconds:.1f} s of CPU time (limit {_CPU_SECONDS:.0f})")

    flags = [sys.argv[0], f"-max_len={target.max_length}", *flags]
    custom = {} if mutate is None else {"custom_mutator": mutated}
    atheris.Setup(flags, check, **custom)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
