"""What the labels of a dataset are: one class or several, as numbers, names or vectors."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tfrtool.errors import DatasetError, some_of
from tfrtool.examples.content import is_text
from tfrtool.examples.example import DType, Feature, Value, decode_example
from tfrtool.loading.tensors import Tensor
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.remote_path import AnyPath

_NUMBER, _NAME = "image/class/label", "image/class/text"
"""TensorFlow's models keep the number of an image's class and its name in these two features."""

_LONGEST_NAME = 1024
_Location = tuple[AnyPath, Record]
"""A record, and the shard that it is in."""

_BITS = frozenset((0, 1))
_ABSENT = (0, True)
"""The kind of labels without a value."""
_UNKNOWN = (-1,)
"""The label that TFDS gives to images of a test set."""


class Task(enum.Enum):
    """What a model predicts: an image's one class, for each class whether it is of it, numbers."""

    SINGLE = "single-label"
    MULTI = "multi-label"
    REGRESSION = "regression"

    @property
    def option(self) -> Literal["classification", "regression"]:
        """The value of the option ``task`` for such labels."""
        return "regression" if self is Task.REGRESSION else "classification"


class LabelEncoding(enum.Enum):
    """What the values of a label feature are."""

    CLASS = "class"  # one number, or one name
    ONE_HOT = "one-hot"  # a value for each class, one of them 1 and all others 0
    MULTI_HOT = "multi-hot"  # the same, any of them 1
    FLAG = "flag"  # 0 or 1, for one class of several that have a feature each
    LIST = "list"  # the numbers or the names of the classes, as many as there are
    VALUE = "value"  # numbers to predict


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelForm:
    """How a label feature stores classes, and the classes; or that it stores numbers."""

    names: tuple[str, ...] = ()  # of the classes, by class number
    dtype: DType = DType.INT64  # STRING for names, FLOAT32 only for vectors
    encoding: LabelEncoding = LabelEncoding.CLASS
    numbers: tuple[int, ...] = ()  # stored for the classes, ascending, if not 0, 1, 2 ...
    width: int | None = None  # of a vector of numbers to predict
    parts: tuple[tuple[str, "LabelForm"], ...] = ()  # by feature, if several have such numbers

    @property
    def task(self) -> Task:
        """What a model of these labels predicts."""
        if self.encoding is LabelEncoding.VALUE:
            return Task.REGRESSION
        several = self.encoding in (LabelEncoding.MULTI_HOT, LabelEncoding.LIST)
        return Task.MULTI if several else Task.SINGLE

    @property
    def is_class_number(self) -> bool:
        """Whether a label is loaded as the number of its class."""
        return self.task is Task.SINGLE

    @property
    def is_vector(self) -> bool:
        """Whether a value for each class is stored."""
        return self.encoding in (LabelEncoding.ONE_HOT, LabelEncoding.MULTI_HOT)

    @property
    def expected(self) -> str:
        """Describe the label that each record must have."""
        if self.encoding is LabelEncoding.VALUE:
            count = self.width or "one"
            return f"{count} finite {self.dtype.value}{'' if self.width is None else ' values'}"
        if self.encoding is LabelEncoding.FLAG:
            return "0 or 1"
        if self.is_vector:
            return f"a {self.encoding.value} vector of {len(self.names)} values"
        values = some_of([*map(str, self.numbers or self.names)], 6)
        kind = "a list" if self.encoding is LabelEncoding.LIST else "one"
        return f"{kind} of the {'names' if self.dtype is DType.STRING else 'numbers'} {values}"

    @property
    def notes(self) -> tuple[str, ...]:
        """How labels other than class numbers from 0 were interpreted, one clause each."""
        kind = "names" if self.dtype is DType.STRING else "numbers"
        form = f"lists of class {kind}" if self.encoding is LabelEncoding.LIST else ""
        form = f"{self.encoding.value} vectors" if self.is_vector else form
        form = f"{len(self.parts)} features of 0 and 1" if self.parts else form
        shown = some_of([*map(str, self.numbers)], 6)
        classes = f"classes 0 to {len(self.numbers) - 1}" if len(self.numbers) > 1 else "class 0"
        return tuple(filter(None, (form, shown and f"labels {shown} are {classes}")))

    def target_names(self, feature: str) -> list[str]:
        """Return names of the numbers to predict in a feature; for a vector NAME[0], NAME[1] ..."""
        if self.encoding is not LabelEncoding.VALUE:
            return []
        return [feature] if self.width is None else [f"{feature}[{n}]" for n in range(self.width)]

    def parsing(self) -> Any:
        """Return how TensorFlow parses the feature."""
        import tensorflow as tf

        dtype = getattr(tf, self.dtype.value)
        if self.encoding is LabelEncoding.LIST:
            return tf.io.RaggedFeature(dtype)
        width = len(self.names) if self.is_vector else self.width
        return tf.io.FixedLenFeature([] if width is None else [width], dtype)


def label_tensor(form: LabelForm, values: Tensor) -> Tensor:
    """Return a record's class, int64 []; or float32 [classes] of 0 and 1 if it may have several.

    Numbers to predict are float32 [], or [width] for a vector. An invalid label raises an
    ``InvalidArgumentError`` when the graph runs, by a gather from a tensor without that index: an
    assertion takes five operations, which shows with small images.
    """
    import tensorflow as tf

    if form.encoding is LabelEncoding.VALUE:
        value = tf.cast(values, tf.float32)
        finite = tf.reduce_all(tf.math.is_finite(value))
        return tf.gather(value[None], tf.where(finite, 0, -1))
    if form.is_vector or form.encoding is LabelEncoding.FLAG:
        vector = tf.cast(values, tf.float32)
        valid = tf.reduce_all(tf.equal(values, 0) | tf.equal(values, 1))
        if form.encoding is LabelEncoding.ONE_HOT:
            valid &= tf.equal(tf.math.count_nonzero(vector), 1)
        vector = tf.gather(vector[None], tf.where(valid, 0, -1))
        return tf.argmax(vector) if form.encoding is LabelEncoding.ONE_HOT else vector
    if form.dtype is DType.STRING or form.numbers:
        known = tf.constant(form.names if form.dtype is DType.STRING else form.numbers)
        matches = tf.equal(tf.cast(known, values.dtype), values[..., None])
        classes = tf.argmax(tf.cast(matches, tf.uint8), axis=-1)
        values = tf.where(tf.reduce_any(matches, axis=-1), classes, tf.constant(-1, tf.int64))
    classes = tf.gather(tf.range(len(form.names), dtype=tf.int64), values)
    if form.encoding is LabelEncoding.CLASS:
        return classes
    return tf.reduce_max(tf.one_hot(tf.concat([classes, [-1]], 0), len(form.names)), axis=0)


@dataclass(slots=True)
class _Alike:
    """Labels with the same number of values, which are all 0 or 1, or not."""

    first: tuple[AnyPath, Record]
    count: int = 0
    one_hot: bool = True  # each has exactly one 1
    repeats: bool = False  # a value occurs twice in one of them, so they aren't lists of classes

    def add(self, later: "_Alike") -> None:
        """Add the labels of another split."""
        self.count += later.count
        self.one_hot &= later.one_hot
        self.repeats |= later.repeats


_Kinds = dict[tuple[int, bool], _Alike]
"""Labels by the number of their values, and whether these are all 0 or 1."""


class _LabelScan:
    """The labels of all records, and what they have in common."""

    def __init__(self, feature: str, dtype: DType) -> None:
        self.feature, self.dtype = feature, dtype
        self.names: dict[Value, set[bytes]] = {}  # that stand by each value
        self.kinds: _Kinds = {}  # of splits with labels

    def read(self, shards: Iterable[AnyPath], *, skip: bool) -> _Kinds:
        """Read all records; with ``skip``, ignore damage and what can't be a label."""
        kinds: _Kinds = {}
        for location, features in _examples(shards, skip=skip):
            try:
                self._read_label(kinds, features, location)
            except ValueError as error:
                if not skip:
                    raise _error(str(error), location) from error
        return kinds

    def add(self, kinds: _Kinds) -> None:
        """Add the labels of a split."""
        for kind, alike in kinds.items():
            if kind in self.kinds:
                self.kinds[kind].add(alike)
            else:
                self.kinds[kind] = alike

    def _read_label(
        self, kinds: _Kinds, features: Mapping[str, Feature], location: _Location
    ) -> None:
        label = features.get(self.feature, Feature(dtype=None, values=()))
        values = () if label.values == _UNKNOWN else label.values
        for value in values:
            text = isinstance(value, bytes) and len(value) <= _LONGEST_NAME and is_text(value)
            number = self.dtype is DType.FLOAT32 or (isinstance(value, int) and value >= 0)
            if label.dtype is not self.dtype or not (text or number):
                what = "text" if self.dtype is DType.STRING else "a number of at least 0"
                raise ValueError(f"invalid label in feature {self.feature!r}: expected {what}")
        bits = self.dtype is not DType.STRING and _BITS.issuperset(values)
        alike = kinds.setdefault((len(values), bits), _Alike(location))
        alike.count += 1
        alike.one_hot &= bits and list(values).count(1) == 1
        alike.repeats |= len({*values}) < len(values)
        if self.dtype is DType.FLOAT32:
            return
        texts = features[_NAME].values if _NAME in features else ()
        names = texts if len(texts) == len(values) else [b""] * len(values)
        for value, name in zip(values, names, strict=True):
            known = self.names.setdefault(value, set())
            if isinstance(name, bytes) and len(known) < 2:  # two names count as none
                known.add(name)
        if len(self.names) > MAX_CLASSES:
            raise DatasetError(f"label feature {self.feature!r} has over {MAX_CLASSES:,} classes")

    def form(self, *, listed: bool, skip: bool) -> LabelForm:
        """Return the form of the labels; with ``listed`` the metadata says that they are lists.

        Labels of one length, of 0 and 1 alone, are vectors; so are most of them if values repeat.
        An exception raises a `DatasetError` that names its record; with ``skip`` it is ignored.
        """
        records = sum(alike.count for alike in self.kinds.values())
        vectors = [(alike.count, width) for (width, bits), alike in self.kinds.items() if bits]
        count, width = max(vectors, default=(0, 0))
        most = width > 1 and 2 * count > records and self.kinds[width, True].repeats
        form, right = LabelForm(dtype=self.dtype), {*self.kinds}
        if width > 1 and not listed and (most or count == records):
            one_hot, right = self.kinds[width, True].one_hot, {(width, True)}
            encoding = LabelEncoding.ONE_HOT if one_hot else LabelEncoding.MULTI_HOT
            form = replace(form, encoding=encoding, names=tuple(map(str, range(width))))
        elif self.dtype is DType.FLOAT32:
            what = f"feature {self.feature!r} can't be the label"
            raise DatasetError(what, expected="int64, text, or vectors of 0 and 1 of one length")
        else:
            numbers, names = self._classes()
            form = replace(form, names=names, numbers=numbers)
            if listed or any(width > 1 for width, _ in self.kinds):
                form = replace(form, encoding=LabelEncoding.LIST)
            else:
                right = {kind for kind in self.kinds if kind[0]}
        for kind, alike in self.kinds.items():
            if kind not in right and not skip:
                what = f"invalid label in feature {self.feature!r}: expected {form.expected}"
                found = f"{kind[0]} values" if kind[0] else "no label"
                raise _error(f"{what}, found {found}", alike.first)
        return form

    def _classes(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the numbers of the classes, if they are not 0, 1, 2 ..., and their names."""
        if self.dtype is DType.STRING:
            return (), tuple(
                sorted(name.decode() for name in self.names if isinstance(name, bytes))
            )
        numbers = tuple(sorted(number for number in self.names if isinstance(number, int)))
        known = [self.names[number] for number in numbers]
        names = [min(some).decode("utf-8", "replace") for some in known if len(some) == 1]
        if self.feature != _NUMBER or not all(names) or len({*names}) < len(numbers):
            names = [*map(str, numbers)]
        return () if numbers == tuple(range(len(numbers))) else numbers, tuple(names)


def find_label_form(
    feature: str,
    example: Feature,
    *,
    names: Sequence[str] | None,
    listed: bool,
    splits: Mapping[str, Callable[[], Iterable[AnyPath]]],
    skip: bool,
) -> tuple[LabelForm, tuple[str, ...]]:
    """Return the form of a dataset's labels: by its metadata, or else by all of its records.

    Also return the splits without any label, which are left aside, as long as another has some.

    Without metadata, the numbers that occur are the classes, in ascending order, and their names
    are in ``image/class/text``, or else the numbers. Strings are names, in sorted order. A vector
    has a class for each value.

    Args:
        feature: name of the label feature.
        example: the feature in one record.
        names: names of the classes in the metadata.
        listed: whether the metadata says that the label is a list of classes.
        splits: functions that return the local shards of each split, called only if they must be.
        skip: whether to ignore damage and records whose label has another form.
    """
    dtype = example.dtype or DType.INT64
    single = len(example.values) == 1 and not listed
    if names and dtype is not DType.FLOAT32 and (single or listed):
        encoding = LabelEncoding.CLASS if single else LabelEncoding.LIST
        return LabelForm(names=tuple(names), dtype=dtype, encoding=encoding), ()
    scan = _LabelScan(feature, dtype)
    found = {name: scan.read(find_shards(), skip=skip) for name, find_shards in splits.items()}
    labeled = {name: kinds for name, kinds in found.items() if kinds.keys() != {_ABSENT}} or found
    for kinds in labeled.values():
        scan.add(kinds)
    form = scan.form(listed=listed, skip=skip)
    if names and form.is_vector and len(names) != len(form.names):
        what = f"vectors in label feature {feature!r} don't match the classes in the metadata"
        raise DatasetError(what, expected=len(names), found=len(form.names))
    form = replace(form, names=tuple(names), numbers=()) if names else form
    return form, tuple(name for name in found if name not in labeled)


def find_flag_form(
    example: Mapping[str, Feature],
    *,
    splits: Mapping[str, Callable[[], Iterable[AnyPath]]],
    skip: bool,
) -> tuple[LabelForm, tuple[str, ...]]:
    """Return the form of labels that have a feature of 0 or 1 each, and the splits without any.

    Args:
        example: the features in one record, by their names, which are those of the classes.
        splits: functions that return the local shards of each split.
        skip: whether to ignore damage and records whose labels have another form.
    """
    parts = {
        name: LabelForm(dtype=feature.dtype or DType.INT64, encoding=LabelEncoding.FLAG)
        for name, feature in example.items()
    }
    unlabeled = [
        name
        for name, find_shards in splits.items()
        if not _has_flags(parts, find_shards(), skip=skip)
    ]
    names, pairs = tuple(parts), tuple(parts.items())
    return LabelForm(encoding=LabelEncoding.MULTI_HOT, names=names, parts=pairs), (
        () if len(unlabeled) == len(splits) else tuple(unlabeled)
    )


def _has_flags(parts: Mapping[str, LabelForm], shards: Iterable[AnyPath], *, skip: bool) -> bool:
    """Return whether any record has such labels; others are an error, unless all lack them."""
    flawed: tuple[str, _Location] | None = None
    has_any = False
    for location, features in _examples(shards, skip=skip):
        has_any |= any(name in features for name in parts)
        bad = flawed is None and next(
            (name for name, form in parts.items() if not _is_flag(features.get(name), form)), ""
        )
        if bad:
            what = f"invalid label in feature {bad!r}: expected {parts[bad].expected}"
            flawed = what, location
        if flawed and has_any and not skip:
            raise _error(*flawed)
    return has_any


def _examples(
    shards: Iterable[AnyPath], *, skip: bool
) -> Iterator[tuple[_Location, Mapping[str, Feature]]]:
    """Yield the features of each record; with ``skip``, without those that are damaged."""
    for path in shards:
        for item in read_shard(path):
            if isinstance(item, Fault):
                if not skip and item.kind is not FaultKind.EMPTY:
                    raise as_error(path, item, in_dataset=True)
                continue
            location = path, item
            try:
                features = decode_example(item.payload).features
            except ValueError as error:
                if not skip:
                    raise _error(str(error), location) from error
                continue
            yield location, features


def _is_flag(feature: Feature | None, form: LabelForm) -> bool:
    if feature is None or feature.dtype is not form.dtype or feature.dtype is DType.STRING:
        return False
    return len(feature.values) == 1 and feature.values[0] in _BITS


def _error(message: str, location: _Location) -> DatasetError:
    path, record = location
    return DatasetError(message, path=path, record=record.index, offset=record.offset)
