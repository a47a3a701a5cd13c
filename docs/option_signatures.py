"""An extension of Griffe: verbs have the fields of their options as keywords, as at run time."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter
from typing import Any

from griffe import Extension, Function, Parameter, ParameterKind, Parameters


class OptionSignatures(Extension):
    """Takes signatures and docstrings that `takes` completed from imported functions."""

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        """Complete a function or method whose decorator is `takes`."""
        if not any(str(one.value).startswith("takes(") for one in func.decorators):
            return
        module = import_module(func.module.path)
        # Inside of a class, the path below the module has the class's name, too.
        names = func.path.removeprefix(f"{func.module.path}.")
        verb = attrgetter(names)(module)
        known = {one.name: one for one in func.parameters}
        parameters = inspect.signature(verb).parameters.values()
        func.parameters = Parameters(*(known.get(one.name) or _keyword(one) for one in parameters))
        if func.docstring is not None:
            func.docstring.value = verb.__doc__


def _keyword(parameter: inspect.Parameter) -> Parameter:
    default = parameter.default
    return Parameter(
        parameter.name,
        kind=ParameterKind.keyword_only,
        annotation=inspect.formatannotation(parameter.annotation).replace("typing.", ""),
        default=None
        if default is inspect.Parameter.empty
        else getattr(default, "__name__", repr(default)),
    )
