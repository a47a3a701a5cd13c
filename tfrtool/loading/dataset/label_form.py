"""In which form records hold labels: one class or several, as numbers, names or vectors."""

import enum
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tfrtool.errors import DatasetError, some_of
from tfrtool.examples.content import is_text
from tfrtool.examples.example import DType, Feature, Value
from tfrtool.storage.limits import MAX_CLASSES

_LONGEST_NAME = 1024
_BITS = frozenset((0, 1))
_SHOWN = 6


class Task(enum.Enum):
    """What a classifier decides: which one class an image is of, or of each class whether it is."""

    SINGLE = "single-label"
    MULTI = "multi-label"


class LabelEncoding(enum.Enum):
    """What the values of a label feature are."""

    CLASS = "class"  # one number, or one name
    ONE_HOT = "one-hot"  # a value for each class, one of them 1 and all others 0
    MULTI_HOT = "multi-hot"  # the same, any of them 1
    LIST = "list"  # the numbers or the names of the classes, as many as there are


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelForm:
    """The form of a label feature."""

    dtype: DType = DType.INT64  # STRING for names, FLOAT32 for vectors alone
    encoding: LabelEncoding = LabelEncoding.CLASS
    numbers: tuple[int, ...] = ()  # of the classes, ascending, where they are not 0, 1, 2 ...

    @property
    def task(self) -> Task:
        """What a classifier of these labels decides."""
        several = self.encoding in (LabelEncoding.MULTI_HOT, LabelEncoding.LIST)
        return Task.MULTI if several else Task.SINGLE

    @property
    def is_vector(self) -> bool:
        """Whether there is a value for each class."""
        return self.encoding in (LabelEncoding.ONE_HOT, LabelEncoding.MULTI_HOT)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of the labels, a clause each; nothing of single numbers from 0 on."""
        kind = "names" if self.dtype is DType.STRING else "numbers"
        told = f"lists of class {kind}" if self.encoding is LabelEncoding.LIST else ""
        told = f"{self.encoding.value} vectors" if self.is_vector else told
        numbers, classes = self.numbers, f"classes 0 to {len(self.numbers) - 1}"
        if len(numbers) < 2:
            moved = f"label {numbers[0]} is class 0" if numbers else ""
        elif numbers[-1] - numbers[0] == len(numbers) - 1:
            moved = f"labels {numbers[0]} to {numbers[-1]} are {classes}"
        else:
            moved = f"labels {some_of(list(map(str, numbers)), _SHOWN)} are {classes}"
        return tuple(filter(None, (told, moved)))


def label_check(
    label: str, form: LabelForm, names: Sequence[str] | None = None
) -> Callable[[Feature], str | None]:
    """Return a function from a record's feature to why it is no label; None if it is one.

    Any class is one without ``names``.
    """
    count = MAX_CLASSES if names is None else len(names)
    texts = None if names is None else {name.encode() for name in names}
    numbers, one_hot = {*form.numbers}, form.encoding is LabelEncoding.ONE_HOT
    shown = f"one of the numbers {some_of(list(map(str, form.numbers)), _SHOWN)}"

    def wanted(value: Value) -> str:
        """Return what stands where a value is no class; nothing where it is one."""
        if form.dtype is DType.STRING:
            if not isinstance(value, bytes) or len(value) > _LONGEST_NAME or not is_text(value):
                return "a name in UTF-8"
            return "" if texts is None or value in texts else f"one of {count} names"
        if form.dtype is DType.FLOAT32:  # vectors alone are judged
            return ""
        if numbers:
            return "" if value in numbers else shown
        if names is None:
            return "" if isinstance(value, int) and value >= 0 else "a number from 0 on"
        return (
            ""
            if isinstance(value, int) and 0 <= value < count
            else f"a number from 0 to {count - 1}"
        )

    def problem(item: Feature) -> tuple[str, str]:
        """Return what should stand where values are no label, and what is there instead."""
        values = item.values
        if item.dtype not in (None, form.dtype):
            return f"{form.dtype.value} values", item.dtype.value
        if form.is_vector:
            expected = f"{count} values, one of them 1 and all others 0"
            expected = expected if one_hot else f"{count} values of 0 and 1"
            if len(values) != count:
                return expected, f"{len(values)}"
            ones = sum(value == 1 for value in values)
            if not _BITS.issuperset(values):
                return expected, "other values"
            return expected if one_hot and ones != 1 else "", f"{ones} of 1"
        if form.encoding is LabelEncoding.CLASS and len(values) != 1:
            return f"one {form.dtype.value} value", "none or several"
        for value in values:
            if expected := wanted(value):
                if isinstance(value, bytes):
                    return expected, f"{len(value)} bytes"
                return expected, f"the number {value}"
        return "", ""

    def check(item: Feature) -> str | None:
        expected, found = problem(item)
        what = f"the feature {label!r} is no class: expected {expected}, found {found}"
        return what if expected else None

    return check


@dataclass(slots=True)
class LabelFold:
    """What the labels of all records have in common: a fold over their values."""

    label: str
    dtype: DType
    records: int = 0
    several: bool = False  # whether a record has more than one value
    empty: bool = False  # whether a record has none
    texts: dict[Value, set[bytes]] = field(default_factory=dict)  # beside a record's only value
    _widths: Counter[int] = field(default_factory=Counter)  # of values that are all 0 or 1
    _one_hot: Counter[int] = field(default_factory=Counter)
    _repeating: set[int] = field(default_factory=set)

    def add_known(self, dtype: DType | None, values: Sequence[Value]) -> bool:
        """Take in a record whose only value came before, as nearly all do; return if it is one."""
        known = dtype is self.dtype and len(values) == 1 and values[0] in self.texts
        self.records += known
        return known

    def add(self, values: Collection[Value], text: Value | None = None) -> None:
        """Take in a record's values, which must be of the type."""
        self.records += 1
        self.several |= len(values) > 1
        self.empty |= not values
        if self.dtype is not DType.STRING and values and _BITS.issuperset(values):
            width, ones = len(values), sum(value == 1 for value in values)
            self._widths[width] += 1
            self._one_hot[width] += ones == 1
            if max(ones, width - ones) > 1:
                self._repeating.add(width)
        if self.dtype is DType.FLOAT32:
            return
        for value in values:
            if (texts := self.texts.get(value)) is None:
                texts = self.texts[value] = set()
                if len(self.texts) > MAX_CLASSES:
                    raise DatasetError(f"the label {self.label!r} has over {MAX_CLASSES:,} classes")
            # More than one is no name.
            if isinstance(text, bytes) and len(texts) < 2 and len(values) == 1:
                texts.add(text)

    def result(self, *, listed: bool, named: bool) -> tuple[LabelForm, tuple[str, ...]]:
        """Return the form of all labels, and the names of the classes.

        Nothing but 0 and 1 everywhere, and as many values, are vectors. So are they with some
        exceptions, which are wrong then, where a value repeats: no list has a class twice.

        With ``listed`` labels are lists, whatever they look like; with ``named``, names are the
        texts beside the numbers, if each has one of its own.

        Raises:
            DatasetError: these numbers are no labels.
        """
        width, count = next(iter(self._widths.most_common(1)), (0, 0))
        most = width in self._repeating and 2 * count > self.records
        if width > 1 and not listed and (most or count == self.records):
            one_hot = self._one_hot[width] == count
            encoding = LabelEncoding.ONE_HOT if one_hot else LabelEncoding.MULTI_HOT
            return LabelForm(dtype=self.dtype, encoding=encoding), tuple(map(str, range(width)))
        if self.dtype is DType.FLOAT32:
            raise DatasetError(
                f"the feature {self.label!r} is no label",
                expected="int64, string, or as many float32 values of 0 and 1 in every record",
                found="other float32 values",
            )
        encoding = LabelEncoding.LIST if listed or self.several else LabelEncoding.CLASS
        numbers, names = self._classes(named=named)
        return LabelForm(dtype=self.dtype, encoding=encoding, numbers=numbers), names

    def exceptions(self, form: LabelForm) -> bool:
        """Return whether some records have labels that are not of the form."""
        if form.is_vector:
            return self._widths.most_common(1)[0][1] < self.records
        return self.empty and form.encoding is LabelEncoding.CLASS

    def _classes(self, *, named: bool) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the numbers of the classes, if they are not 0, 1, 2 ..., and their names."""
        if self.dtype is DType.STRING:
            return (), tuple(sorted(_text(value) for value in self.texts))
        numbers = tuple(sorted(value for value in self.texts if isinstance(value, int)))
        texts = [_text(next(iter(self.texts[number]), b"")) for number in numbers]
        unique = all(len(self.texts[number]) == 1 for number in numbers) and all(texts)
        if not named or not unique or len(set(texts)) < len(texts):
            texts = list(map(str, numbers))
        return () if numbers == tuple(range(len(numbers))) else numbers, tuple(texts)


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
