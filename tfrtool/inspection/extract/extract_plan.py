"""Which features become files, folders and names, decided before anything is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import ShardError, UsageError, printable, some_of
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
)
from tfrtool.examples.roles import SAMPLE, find_roles, info_beside, is_image
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_shard

_HEAD = 4097  # bytes of a value that show what it is; no name or label is so long
_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractPlan:
    """The features that become files, class folders and names; None for none of these."""

    feature: str
    by: str | None
    name: str | None
    guess: str | None = None  # of the class folders, where no label is known


def find_feature(example: Example, name: str) -> Feature | None:
    """Return a feature of a record; a feature list is one feature with the values of all steps."""
    feature = example.features.get(name)
    if feature is not None or name not in example.feature_lists:
        return feature
    steps = [step for step in example.feature_lists[name] if step.dtype is not None]
    dtypes = {step.dtype for step in steps}
    if len(dtypes) != 1:  # steps that disagree
        return Feature(dtype=None, values=())
    return Feature(dtype=dtypes.pop(), values=tuple(v for step in steps for v in step.values))


def plan_extract(
    shards: Sequence[Path], feature: str | None, by: str | None, name: str | None
) -> ExtractPlan:
    """Choose the features, from the options and the first records.

    If no record has a feature that was asked for, all of them are looked through.
    """
    wanted = {feature, by, name} - {None}
    seen: dict[str, Feature] = {}  # the start of the first value of each feature
    lists: set[str] = set()
    label = named = guess = None
    infos = {directory: info_beside(directory) for directory in {path.parent for path in shards}}
    for number, (path, example) in enumerate(_examples(shards)):
        if number >= SAMPLE and wanted <= seen.keys():
            break
        for key in (*example.features, *example.feature_lists):
            item = find_feature(example, key)
            if item is not None and len(item.values) > 1:
                lists.add(key)
            if item is not None and (key not in seen or not seen[key].values):
                head = [v[:_HEAD] if isinstance(v, bytes) else v for v in item.values[:1]]
                seen[key] = Feature(dtype=item.dtype or seen.get(key, item).dtype, values=head)
        if number < SAMPLE:
            roles = find_roles(example.features, infos[path.parent])
            label, named = label or roles.label, named or roles.name
            guess = guess or roles.guess
        del example, item  # a large record is released before the next one is read
    for missing in sorted(map(str, wanted - seen.keys())):
        raise UsageError(f"no feature {missing!r}", path=shards[0], found=_listed(seen))
    if feature is None:
        info = next((info for info in infos.values() if info is not None), None)
        alone = {key: head for key, head in seen.items() if key not in lists}
        feature = find_roles(alone, info).image or find_roles(seen, info).image
    if feature is None:
        raise _no_image(shards[0], seen)
    other = "a string feature other than the extracted one"
    for asked, part, expected in (
        (name, "name the files", other),
        (feature, "become files", "string"),
    ):
        dtype = DType.STRING if asked is None else seen[asked].dtype
        if dtype not in (DType.STRING, None) or asked == feature == name:
            what, found = f"feature {asked!r} can't {part}", _dtype(dtype)
            raise UsageError(what, path=shards[0], expected=expected, found=found)
    by, name = by or label, name or named
    return ExtractPlan(
        feature=feature,
        by=by if by != feature else None,
        name=name if name != feature else None,
        guess=guess if by is None and guess != feature else None,
    )


def _no_image(path: Path, seen: Mapping[str, Feature]) -> ShardError | UsageError:
    images = sorted(repr(key) for key, head in seen.items() if any(map(is_image, head.values)))
    if images:
        choose, found = "use --feature to choose one", ", ".join(images)
        return UsageError("several features hold images", path=path, found=found, hint=choose)
    strings = any(head.dtype is DType.STRING for head in seen.values())
    hint = "use --feature to extract another string feature" if strings else None
    return ShardError("no feature holds an image", path=path, found=_listed(seen), hint=hint)


def _examples(shards: Sequence[Path]) -> Iterator[tuple[Path, Example]]:
    """Yield the records that are Examples; `ShardError` if there are none."""
    others, count = None, 0
    for path in shards:
        for item in read_shard(path):
            if isinstance(item, Fault):
                others = others or f"no intact records ({item.message})"
                continue
            kind = classify_payload(item.payload)
            if kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
                count += 1
                yield path, decode_example(item.payload, kind)
            else:
                others = kind.title
    if not count:
        expected = "records with features"
        raise ShardError("nothing to extract", path=shards[0], expected=expected, found=others)


def _dtype(dtype: DType | None) -> str:
    return "never set" if dtype is None else dtype.value


def _listed(seen: Mapping[str, Feature]) -> str:
    names = [f"{printable(key)} ({_dtype(seen[key].dtype)})" for key in sorted(seen)]
    return some_of(names, _NAMES_SHOWN) or "records without features"
