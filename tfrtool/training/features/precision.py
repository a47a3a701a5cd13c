"""With how many bits a frozen base is run."""

from __future__ import annotations

import enum
import os
from pathlib import Path

from tfrtool.errors import UsageError

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""What Linux calls the instructions that multiply bfloat16 numbers on x86. Without them, they are
made into float32 first, and nothing is won."""


class Precision(enum.Enum):
    """What the numbers in a frozen base are; the values are those of the CLI.

    BFLOAT16 has the range of float32, and 8 bits of precision instead of 24.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def check_precision(precision: Precision, cpuinfo: Path = _CPUINFO) -> None:
    """Check that the processor can compute with a precision, and TensorFlow with oneDNN on it.

    Raises:
        UsageError: it can't, or ``cpuinfo`` (proc(5)) doesn't say so.
    """
    if precision is Precision.FLOAT32:
        return
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    if not flags & _BFLOAT16_FLAGS:
        raise UsageError(
            "this processor has no instructions for bfloat16",
            expected=" or ".join(sorted(_BFLOAT16_FLAGS)),
            hint="leave --precision out",
        )
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false"):
        raise UsageError(
            "TensorFlow computes in bfloat16 by oneDNN, which TF_ENABLE_ONEDNN_OPTS turns off",
            hint="leave --precision out",
        )
