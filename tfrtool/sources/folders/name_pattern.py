"""Labels and further features that a regular expression finds in the paths of images."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tfrtool.errors import SourceError, UsageError, printable
from tfrtool.sources.items import Item, ItemTable, LeftOut, Source, UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import TableColumns
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED

_LABEL = "label"
_BATCH = 4096
_SHOWN = 80


class LabelFrom(enum.Enum):
    """Where the label of a file comes from; the values are those of the CLI."""

    FOLDER = "folder"
    """The folder that it lies in: ``cat/1.jpg``."""
    FILENAME = "filename"
    """The part of its name before the first number that a dot, hyphen, underscore or space sets
    apart: ``cat.1.jpg``, ``great_dane_1.jpg``, ``cat (1).jpg``. Without such a number, the part
    before the first dot, hyphen or underscore: ``cat-asleep.jpg``."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A regular expression of RE2, whose time is linear in the length of a path.

    Attributes:
        pattern: the expression, which is looked for anywhere in a path below SOURCE.
        groups: the names of its groups.
    """

    pattern: str
    groups: tuple[str, ...]

    @classmethod
    def parse(cls, pattern: str) -> "NamePattern":
        """Parse an expression; a `UsageError` if it is invalid, or has no named group."""
        import pyarrow
        import pyarrow.compute as pc

        pattern = str(pattern)  # Python may pass anything
        shown = f"--label-from '{printable(pattern[:_SHOWN])}'"
        try:
            found = pc.extract_regex(pyarrow.array(["-"]), pattern)
        except pyarrow.ArrowInvalid as error:
            reason = printable(str(error).splitlines()[0][:200])
            raise UsageError(f"{shown} is not a valid regular expression ({reason})") from error
        groups = tuple(field.name for field in found.type)
        if not groups or len({*groups}) < len(groups):
            what = "has no named group" if not groups else "has two groups of one name"
            expected = "folder, filename, or a pattern such as '(?P<label>[a-z]+)_[0-9]+'"
            raise UsageError(f"{shown} {what}", expected=expected)
        return cls(pattern, groups)

    @property
    def label_group(self) -> str:
        """The group of labels: the one called ``label``, or the first."""
        return _LABEL if _LABEL in self.groups else self.groups[0]

    @property
    def columns(self) -> Sequence[str]:
        """The groups that become features: all but ``label``, unless there is only one."""
        return [name for name in self.groups if name != _LABEL] if len(self.groups) > 1 else []

    def label(self, key: str) -> str | None:
        """Return the label in a path, or None."""
        (found,) = self.values([key])
        return found.get(self.label_group, "").strip() or None

    def values(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Return what the groups find in each path; nothing where the expression doesn't match."""
        import pyarrow
        import pyarrow.compute as pc

        texts = [key.encode("utf-8", "replace").decode() for key in keys]
        found: list[dict[str, str] | None]
        found = pc.extract_regex(pyarrow.array(texts, pyarrow.string()), self.pattern).to_pylist()
        return [one or {} for one in found]


def with_name_features(
    source: Source, pattern: NamePattern, options: SourceOptions, where: str, scratch: Path
) -> Source:
    """Return a source with the features that a pattern finds in the paths of its images.

    They are those of ``--column``, or else all groups but the one called ``label``.

    Raises:
        UsageError: a group has the name of another feature, or no group has that of a column.
    """
    if not (names := options.columns or pattern.columns):
        return source
    columns = ValueColumns(replace(options, columns=tuple(names)), where)
    _, wanted = columns.of(pattern.groups, TableColumns(None, _LABEL, None))
    found, rejected = ItemTable(scratch), CappedList[LeftOut](MAX_LISTED)
    for item, values in _with_values(source.items, pattern):
        try:
            found.add(item._replace(extra=columns.add(values, wanted, typed=False)))
        except UnfitError as error:
            rejected.add(LeftOut(key=item.key, reason=str(error)))
    features, items = columns.complete(source.features, labelled=True), ItemTable(scratch)
    for item in found:
        items.add(item._replace(extra=columns.packed(item.extra, features.columns)))
    if not items:
        first = rejected.entries[0]
        raise SourceError("no usable images", path=where, found=f"{first.key}: {first.reason}")
    notices = source.notices
    if pattern.label_group != _LABEL:
        notice = f"labels are the group '{pattern.label_group}'; name a group 'label' to choose"
        notices = (*notices, notice)
    return replace(
        source,
        items=items,
        features=features,
        notices=notices,
        rejected=(*source.rejected, *rejected.entries),
        more_rejected=source.more_rejected + rejected.more,
    )


def _with_values(
    items: Iterable[Item], pattern: NamePattern
) -> Iterator[tuple[Item, dict[str, str]]]:
    remaining = iter(items)
    while batch := [*islice(remaining, _BATCH)]:
        yield from zip(batch, pattern.values([item.key for item in batch]), strict=True)


def parse_label_from(text: str) -> LabelFrom | NamePattern:
    """Return where labels come from: folders, file names, or what a pattern finds in paths."""
    if text in {kind.value for kind in LabelFrom}:
        return LabelFrom(text)
    return NamePattern.parse(text)
