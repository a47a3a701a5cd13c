"""Functions of the user's, named as ``package.module:function`` or ``file.py:function``."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, reason_of


def find_function(text: str, option: str, expected: str) -> Callable[..., Any]:
    """Import a function by its name.

    A module is searched for where Python searches, and last in the current directory.

    Args:
        text: the name.
        option: the option that it was given for, for errors.
        expected: what the function takes and returns, for errors.

    Raises:
        UsageError: there is no such module, file or function, or it can't be imported.
    """
    place, _, name = text.rpartition(":")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise UsageError(f"{option} {text} can't be imported: {reason}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{option} {text}: no function {name!r}", expected=expected)
    return function  # type: ignore[no-any-return]  # callable(), of Any


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError("no such file")
    # Keras finds the classes of its layers under this name; but a json.py replaces no library.
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) != spec.origin:
        raise ImportError(f"a module {path.stem!r} is already loaded: rename the file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> Any:
    sys.path.append("")
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove("")
