"""What the labels of a dataset are, told from its metadata or from all of its records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError
from tfrtool.examples.content import is_text
from tfrtool.examples.example import DType, Feature, Value
from tfrtool.examples.tfds_metadata import FEATURES, read_class_names
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.forms import NOTHING, Described
from tfrtool.loading.labels import LabelEncoding, LabelForm, label_problem
from tfrtool.loading.record_check import features_reader
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.limits import MAX_CLASSES

_NUMBER, _NAME = "image/class/label", "image/class/text"
"""TensorFlow's models keep the number of an image's class and its name side by side."""

_LONGEST_NAME = 1024
_BITS = frozenset((0, 1))


def find_labels(
    dataset: Dataset, example: Feature, described: Described, *, skip: bool
) -> LabelForm:
    """Return the form of a dataset's labels, by what its metadata says, else by all records.

    Numbers are those that some record has, in their order; their names are those that stand beside
    them in ``image/class/text``, else the numbers. Strings are names, and are numbered in sorted
    order. A vector has a class for each of its values.

    Args:
        dataset: all but the form of its labels is known.
        example: the label, as one record has it.
        described: what features.json says of it; a sequence is a list, whatever it looks like.
        skip: whether damage, and a record whose label can't be one of that form, is no error.
    """
    root, label, dtype = dataset.directory, dataset.label_feature, example.dtype or DType.INT64
    if (described.classes or 0) > MAX_CLASSES:
        many = f"{described.classes:,} classes; the limit is {MAX_CLASSES:,}"
        raise DatasetError(f"label feature {label!r} has {many}", path=root / FEATURES)
    names: Sequence[str] | None = read_class_names(root, label)
    if names is None and described.classes and dtype is DType.INT64:
        names = list(map(str, range(described.classes)))
    single = len(example.values) == 1 and not described.listed
    if names and dtype is not DType.FLOAT32 and (single or described.listed):
        encoding = LabelEncoding.CLASS if single else LabelEncoding.LIST
        return LabelForm(names=tuple(names), dtype=dtype, encoding=encoding)
    form = _read_labels(dataset, dtype, skip=skip).form(listed=described.listed, skip=skip)
    if names and form.is_vector and len(names) != len(form.names):
        raise DatasetError(
            f"vectors in label feature {label!r} don't match the classes in the metadata",
            path=root,
            expected=len(names),
            found=len(form.names),
        )
    return replace(form, names=tuple(names), numbers=()) if names else form


def _read_labels(dataset: Dataset, dtype: DType, *, skip: bool) -> "_Labels":
    """Read all records; damage, and what can be no label, is an error unless it is skipped."""
    label = dataset.label_feature
    labels, read = _Labels(label, dtype), features_reader([label, _NAME])
    for path in (path for split in dataset.splits.values() for path in split.shards):
        for item in read_shard(dataset.fetch(path)):
            if isinstance(item, Fault):
                if not skip and item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item, in_dataset=True)
                continue
            try:
                labels.add(read(item.payload), path, item)
            except ValueError as error:
                if not skip:
                    raise DatasetError(str(error), **_place(path, item)) from error
    return labels


def _place(path: Path, record: Record) -> dict[str, Any]:
    return {"path": path, "record": record.index, "offset": record.offset}


@dataclass(slots=True)
class _Alike:
    """The records whose labels have the same number of values; all of them 0 or 1, or not."""

    place: Mapping[str, Any]  # of the first, as an error takes it
    ones: int  # in the first
    count: int = 0
    one_hot: bool = True  # whether one value is 1 in each of them
    repeats: bool = False  # whether a value comes twice in one of them: no list has a class twice


class _Labels:
    """What the labels of all records have in common: a fold over their values."""

    def __init__(self, label: str, dtype: DType) -> None:
        self._label, self._dtype, self._records = label, dtype, 0
        self._texts: dict[Value, set[bytes]] = {}  # beside a value, in its place
        self._kinds: dict[tuple[int, bool], _Alike] = {}  # in the order in which they came

    def add(self, features: Mapping[str, Feature], path: Path, record: Record) -> None:
        """Take in a record; `ValueError` says why it has no label."""
        item, texts = features.get(self._label, NOTHING), self._texts
        values, dtype = item.values, self._dtype
        if dtype is item.dtype and len(values) == 1 and values[0] in texts:
            if _NAME not in features:  # as nearly all are
                self._records += 1
                return
        else:
            self._check(item)
        self._records += 1
        bits = dtype is not DType.STRING and _BITS.issuperset(values)
        ones = sum(value == 1 for value in values) if bits else 0
        kind = self._kinds.get((len(values), bits)) or _Alike(_place(path, record), ones)
        self._kinds[len(values), bits] = kind
        kind.count += 1
        kind.one_hot &= ones == 1
        kind.repeats |= max(ones, len(values) - ones) > 1
        if dtype is DType.FLOAT32:
            return
        for value in values:
            texts.setdefault(value, set())
        if len(texts) > MAX_CLASSES:
            raise DatasetError(
                f"label feature {self._label!r} has more than {MAX_CLASSES:,} classes"
            )
        beside = features.get(_NAME, NOTHING).values
        if len(beside) == len(values) or len(values) == 1:
            for value, text in zip(values, beside, strict=False):
                if isinstance(text, bytes) and len(texts[value]) < 2:  # several are no name
                    texts[value].add(text)

    def _check(self, item: Feature) -> None:
        """Raise a `ValueError` if a feature holds no classes, of whatever form."""
        if item.dtype not in (None, self._dtype):
            expected, found = f"{self._dtype.value} values", item.dtype.value
            raise ValueError(label_problem(self._label, expected, found))
        for value in item.values:
            if isinstance(value, bytes):
                if len(value) > _LONGEST_NAME or not is_text(value):
                    raise ValueError(label_problem(self._label, "a UTF-8 name", value))
            elif self._dtype is DType.INT64 and value < 0:
                raise ValueError(label_problem(self._label, "a number of at least 0", value))

    def form(self, *, listed: bool, skip: bool) -> LabelForm:
        """Return the form of all labels, and the names of the classes.

        Nothing but 0 and 1 everywhere, and as many values, are vectors. So are they with some
        exceptions, which are wrong then, where a value repeats. With ``listed`` labels are lists,
        whatever they look like.

        Raises:
            DatasetError: these numbers are no labels; or an exception, which is named, but with
                ``skip``.
        """
        dtype, kinds = self._dtype, self._kinds
        vectors = [(kind.count, width) for (width, bits), kind in kinds.items() if bits]
        count, width = max(vectors, default=(0, 0))
        most = width > 1 and kinds[width, True].repeats and 2 * count > self._records
        if width > 1 and not listed and (most or count == self._records):
            one_hot = kinds[width, True].one_hot
            encoding = LabelEncoding.ONE_HOT if one_hot else LabelEncoding.MULTI_HOT
            form = LabelForm(names=tuple(map(str, range(width))), dtype=dtype, encoding=encoding)
            wrong = [key for key in kinds if key != (width, True)]
        elif dtype is DType.FLOAT32:
            raise DatasetError(
                f"feature {self._label!r} can't be the label",
                expected="int64, string, or float32 vectors of 0 and 1, all of one length",
                found="other float32 values",
            )
        else:
            several = listed or any(width > 1 for width, _ in kinds)
            encoding = LabelEncoding.LIST if several else LabelEncoding.CLASS
            numbers, names = self._classes()
            form = LabelForm(names=names, dtype=dtype, encoding=encoding, numbers=numbers)
            wrong = [] if several else [key for key in kinds if not key[0]]
        if wrong and not skip:
            first, (found, _) = kinds[wrong[0]], wrong[0]
            told = f"{found} values" + (f", {first.ones} of them 1" if form.is_vector else "")
            raise DatasetError(label_problem(self._label, form.wanted, told), **first.place)
        return form

    def _classes(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the numbers of the classes, if they are not 0, 1, 2 ..., and their names."""
        if self._dtype is DType.STRING:
            return (), tuple(sorted(map(_text, self._texts)))
        numbers = tuple(sorted(value for value in self._texts if isinstance(value, int)))
        texts = [_text(min(self._texts[number], default=b"")) for number in numbers]
        unique = all(len(self._texts[number]) == 1 for number in numbers) and all(texts)
        if self._label != _NUMBER or not unique or len(set(texts)) < len(texts):
            texts = list(map(str, numbers))
        return () if numbers == tuple(range(len(numbers))) else numbers, tuple(texts)


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
