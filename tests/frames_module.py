"""Which build of the functions in C the tests read with, or none.

TFRTOOL_FRAMES is the path of another build, as for ``make sanitize``, or "python": then it is as if
there had been no compiler.
"""

from __future__ import annotations

import importlib.util
import os
import sys

__all__ = ["use_frames_module"]

_NAME = "tfrtool.records._frames"


def use_frames_module() -> None:
    """Put the module that TFRTOOL_FRAMES names in place of the installed one."""
    path = os.environ.get("TFRTOOL_FRAMES")
    if path == "python":
        sys.modules[_NAME] = None  # type: ignore[assignment]  # importing it is an error
    elif path:
        spec = importlib.util.spec_from_file_location(_NAME, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"no module: {path}")
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_NAME])
