"""In which form records hold labels: one class or several, as numbers, names or vectors."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from tfrtool.errors import some_of
from tfrtool.examples.example import DType, Feature, Value

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
    """The form of a label feature, and the classes that it tells."""

    names: tuple[str, ...] = ()  # of the classes, by number, from 0
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
    def wanted(self) -> str:
        """What an image must have for a label, in words."""
        if self.is_vector:
            several = self.encoding is LabelEncoding.MULTI_HOT
            which = "of 0 and 1" if several else "one of them 1 and all others 0"
            return f"{len(self.names)} values{' ' if several else ', '}{which}"
        kind = self.dtype.value
        if self.encoding is LabelEncoding.CLASS:
            return f"one {kind} value"
        return f"any number of {kind} values"

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


def label_problem(label: str, expected: str, value: Value | str) -> str:
    """Return what is wrong with a record's label: a value of it, or what else is found."""
    found = value if isinstance(value, str) else f"the number {value!r}"
    found = f"a string of {len(value)} bytes" if isinstance(value, bytes) else found
    return f"invalid class in feature {label!r}: expected {expected}, found {found}"


def label_check(label: str, form: LabelForm) -> Callable[[Feature], str | None]:
    """Return a function from a record's feature to why it is no label; None if it is one."""
    count, known, expected = len(form.names), frozenset[Value]((0, 1)), form.wanted
    length = count if form.is_vector else 1 if form.encoding is LabelEncoding.CLASS else None
    if form.dtype is DType.STRING:
        known, expected = frozenset(map(str.encode, form.names)), f"one of {count} names"
    elif form.numbers:
        shown = some_of(list(map(str, form.numbers)), _SHOWN)
        known, expected = frozenset(form.numbers), f"one of the numbers {shown}"
    elif not form.is_vector:
        known, expected = frozenset(range(count)), f"a number from 0 to {count - 1}"

    def check(item: Feature) -> str | None:
        values = item.values
        if item.dtype not in (None, form.dtype):
            return label_problem(label, f"{form.dtype.value} values", item.dtype.value)
        ones = sum(value == 1 for value in values) if form.is_vector else 0
        one_hot = form.encoding is LabelEncoding.ONE_HOT
        if (length is not None and len(values) != length) or (one_hot and ones != 1):
            found = f"{len(values)} values" + (f", {ones} of them 1" if form.is_vector else "")
            return label_problem(label, form.wanted, found)
        for value in values:
            if value not in known:
                return label_problem(label, expected, value)
        return None

    return check
