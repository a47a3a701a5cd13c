"""How records differ from a tree of fields."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import Ints


class FieldMisfit(NamedTuple):
    """How a record differs from its tree.

    Attributes:
        path: the feature, as it is stored.
        expected: what the tree says, a clause.
        found: what the record has.
        is_text: whether it is only that text isn't UTF-8, which TFDS reads all the same.
    """

    path: str
    expected: str
    found: str
    is_text: bool = False

    def __str__(self) -> str:
        return f"feature {self.path!r}: expected {self.expected}, found {self.found}"


class Misfits:
    """The misfits of records, as they are found.

    Attributes:
        misfits: those of each record, by its place, and by the feature.
        texts: in the same way, text that isn't UTF-8, if ``strict``; otherwise it is a misfit.
    """

    def __init__(self, *, strict: bool) -> None:
        self.misfits: dict[int, dict[str, FieldMisfit]] = {}
        self.texts: dict[int, dict[str, FieldMisfit]] = {}
        self._strict = strict

    def add(
        self,
        rows: Ints,
        path: str,
        expected: str,
        found: Sequence[object] | NDArray[Any] | str,
        *,
        is_text: bool = False,
    ) -> None:
        """Note misfits of records; ``found`` is a text, or says it for each of the rows."""
        texts = [found] * len(rows) if isinstance(found, str) else found
        is_warning = is_text and self._strict
        for row, text in zip(rows.tolist(), texts, strict=True):
            known = (self.texts if is_warning else self.misfits).setdefault(row, {})
            if path not in known:
                known[path] = FieldMisfit(path, expected, str(text), is_text)
