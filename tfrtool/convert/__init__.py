"""Any record: from one format, place or number of shards into another."""

import inspect
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """This package, callable: ``tfrtool.convert(...)`` works whichever was loaded first."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from tfrtool.convert.formats.conversion import convert

        return convert(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from tfrtool.convert.formats.conversion import convert

        return inspect.signature(convert)


sys.modules[__name__].__class__ = _Verb
