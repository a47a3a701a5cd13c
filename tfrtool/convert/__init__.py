"""Any record: from one format, place or number of shards into another."""

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """The room is called as its verb: ``tfrtool.convert(...)`` works whichever was loaded first."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from tfrtool.convert.formats.conversion import convert

        return convert(*arguments, **options)


sys.modules[__name__].__class__ = _Verb
