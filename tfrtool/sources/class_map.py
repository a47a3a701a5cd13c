"""Classes that get another name, are merged, or are dropped."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable, some_of, suggestion
from tfrtool.sources.class_names import distinct_names, named_classes
from tfrtool.sources.items import label_problem
from tfrtool.storage.arguments import as_path
from tfrtool.storage.limits import MAX_CLASS_FILE_BYTES
from tfrtool.storage.opening import read_bounded

_HINT = "use OLD=NEW, or a file with the old and the new name in each row"
_SHOWN = 5
"""Names of classes in an error."""


@dataclass(frozen=True, slots=True)
class ClassMap:
    """New names of classes.

    Attributes:
        names: new names by old ones; "" leaves a class out.
        required: old names that must exist.
        only: the new names that stay; empty for all.
        files: the old names in each file; at least one of them must exist.
        folders: old names that stand for classes of their own, whose names may be alike.
    """

    names: Mapping[str, str]
    required: Sequence[str] = ()
    only: Sequence[str] = ()
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folders: Collection[str] = ()

    @classmethod
    def parse(cls, entries: Iterable[str], only: Sequence[str] = ()) -> "ClassMap":
        """Return what ``--class-map`` means: OLD=NEW, or files of two columns.

        A file may name classes that don't exist, such as all 601 of OpenImages.
        """
        names, required, files = dict[str, str](), list[str](), dict[str, Sequence[str]]()
        folders = set[str]()
        for entry in entries:
            old, sign, new = entry.partition("=")
            if sign and old:
                required.append(old)
                _add(names, old, new)
            else:
                files[entry] = _read(names, entry, folders)
        return cls(names, required, tuple(only), files, folders)

    def __bool__(self) -> bool:
        return bool(self.names or self.only)

    def check_files(self, known: Collection[str]) -> None:
        """Check that each file names a class; a `UsageError` for one that would change nothing."""
        for file, names in self.files.items():
            if known and not any(name in known for name in names):
                raise UsageError(
                    "--class-map: none of these classes exist",
                    path=file,
                    expected=some_of([printable(repr(name)) for name in known], _SHOWN),
                    found=some_of([printable(repr(name)) for name in names], _SHOWN),
                    hint=_HINT,
                )

    def new_names(self, known: Iterable[str]) -> dict[str, str]:
        """Return the new name of each class, "" for one that is dropped.

        A `UsageError` if a class that must exist does not, or none remains.
        """
        new = {name: self.names.get(name, name) for name in known}
        new |= distinct_names({name: new[name] for name in new if name in self.folders})
        for option, wanted, found in (
            ("--class-map", self.required, [*new]),
            ("--only-classes", self.only, [*new.values()]),
        ):
            for name in (one for one in wanted if one not in found):
                hint = suggestion(name, filter(None, found), "classes")
                raise UsageError(f"{option}: no class {printable(name)!r}", hint=hint)
        if self.only:
            new = {old: name if name in self.only else "" for old, name in new.items()}
        if not any(new.values()):
            raise UsageError("--class-map drops all classes")
        return new


def _add(names: dict[str, str], old: str, new: str) -> None:
    if names.setdefault(old, new) != new:
        raise UsageError(f"--class-map has two names for class {printable(old)!r}")
    if new and (problem := label_problem(new)):
        raise UsageError(f"--class-map: class name {printable(new[:40])!r} {problem}")


def _read(names: dict[str, str], file: str, folders: set[str]) -> list[str]:
    """Add the names in a file, and those of folders; return its old names."""
    path = as_path(file)
    with os_errors_as(SourceError, path):
        data = read_bounded(path, MAX_CLASS_FILE_BYTES)
    try:
        text = data.decode("utf-8-sig")
        if pairs := named_classes(text):
            folders.update(pairs)
        else:
            pairs = _pairs(text)
        for old, new in pairs.items():
            _add(names, old, new)
        if not pairs:
            raise ValueError("it is empty")
    except (ValueError, csv.Error) as error:
        reason = "not valid UTF-8" if isinstance(error, UnicodeError) else error
        raise SourceError(f"not a class map: {reason}", path=path, hint=_HINT) from error
    return [*pairs]


def _pairs(text: str) -> dict[str, str]:
    """Return new names by old ones, of rows of two cells."""
    pairs = dict[str, str]()
    sign = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=sign)
    for number, cells in enumerate(rows, start=1):
        if any(len(cell.strip().splitlines()) > 1 for cell in cells):
            raise ValueError(f"row {number} has a line break in a cell")
        if len(cells) != 2 and any(cells):
            raise ValueError(f"row {number} has {len(cells)} columns, not 2")
        if any(cells):
            old, new = (cell.strip() for cell in cells)
            if pairs.setdefault(old, new) != new:
                raise UsageError(f"--class-map has two names for class {printable(old)!r}")
    return pairs
