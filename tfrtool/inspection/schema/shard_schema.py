"""The schema of several shards together: one fold a shard, in parallel, merged in order."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfrtool.engines.processes import map_shards
from tfrtool.errors import ShardError
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.inference import SchemaFold
from tfrtool.examples.schema import Schema
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.inspection.summary.payloads import PayloadFold
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Stream, open_shard, path_of

__all__ = ["InferredSchema", "SchemaOptions", "ShardLoss", "infer_schema"]

_FAULTS_KEPT = 10
"""Faults that are kept of a shard; their number tells of the others."""

_WORTH_A_PROCESS = 8 * 1024 * 1024
"""Bytes that are folded with their values in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """Which records to look at.

    Attributes:
        sample: how many records at most, the first ones of each shard in shares that differ by
            at most one; None for all of them.
        workers: how many processes at most.
    """

    sample: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise ValueError(f"a sample has at least 1 record, not {self.sample}")
        if self.workers < 1:
            raise ValueError(f"workers is at least 1, not {self.workers}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoss:
    """What is missing of a shard in the schema.

    Attributes:
        path: the shard.
        payload: what its payloads are; where they are no examples, none of them is in.
        content: the same in words.
        count: the number of its faults, records that are no examples among them.
        faults: the first of them.
    """

    path: Path
    payload: PayloadKind
    content: str
    count: int
    faults: tuple[Fault, ...]

    def __post_init__(self) -> None:
        if self.count < len(self.faults):
            raise ValueError(f"there are more than {self.count} faults")

    @property
    def whole(self) -> bool:
        """Whether nothing of the shard is in."""
        return self.payload not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredSchema:
    """What the records of some shards say about their features.

    Attributes:
        shards: how many shards were looked into.
        records: how many records are in.
        sequences: how many of them have feature lists.
        duplicates: how many of them have a name more than once.
        left_out: how many features of records are not in, for there are too many names.
        sampled: whether there are records that were not looked at.
        features: what was seen of each feature.
        schema: the narrowest schema that all records fit, conflicts of type apart.
        losses: what is missing, by shard; shards of which all is in are not listed.
    """

    shards: int
    records: int
    sequences: int
    duplicates: int
    left_out: int
    sampled: bool
    features: tuple[FeatureStatistics, ...]
    schema: Schema
    losses: tuple[ShardLoss, ...]

    @property
    def payload(self) -> PayloadKind:
        """What the records are: SequenceExamples where one of them has feature lists."""
        return PayloadKind.SEQUENCE_EXAMPLE if self.sequences else PayloadKind.EXAMPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShardFold:
    """What one process hands back of a shard."""

    fold: SchemaFold
    loss: ShardLoss | None
    sampled: bool


def infer_schema(
    shards: Locations,
    options: SchemaOptions = SchemaOptions(),
    progress: Callable[[int, int], None] | None = None,
) -> InferredSchema:
    """Infer one schema from all shards.

    Memory is bounded by the longest record, and by what `SchemaFold` keeps of each feature.

    Args:
        shards: files, patterns and directories, one or several; or one binary stream.
        options: which records to look at.
        progress: called after each shard with how many are done, and how many there are.

    Raises:
        ShardError: a file can't be read, or none of them holds Examples or SequenceExamples.
    """
    paths = locate_shards(shards).sources
    # A shard that has no share of the sample is not even opened.
    sampled = options.sample is not None and options.sample < len(paths)
    total, losses = SchemaFold(values=True), []
    for done, part in enumerate(_folds(paths, options), start=1):
        total.merge(part.fold)
        losses += [] if part.loss is None else [part.loss]
        sampled |= part.sampled
        if progress is not None:
            progress(done, len(paths))
    if not total.records:
        raise _no_examples(losses)
    return InferredSchema(
        shards=len(paths),
        records=total.records,
        sequences=total.sequences,
        duplicates=total.duplicates,
        left_out=total.left_out,
        sampled=sampled,
        features=total.features(),
        schema=total.schema(),
        losses=tuple(losses),
    )


def _folds(paths: Sequence[Path | Stream], options: SchemaOptions) -> Iterator[_ShardFold]:
    """Fold each shard, or its share of a sample."""
    shares = dict(zip(paths, _shares(options.sample, len(paths)), strict=True))
    chosen = [path for path, share in shares.items() if share != 0]
    fold = partial(_fold_shard, shares=shares)
    yield from map_shards(fold, chosen, options.workers, _WORTH_A_PROCESS)


def _shares(sample: int | None, shards: int) -> list[int | None]:
    """Return how many records to take of each shard, None for all."""
    if sample is None:
        return [None] * shards
    return [sample * (i + 1) // shards - sample * i // shards for i in range(shards)]


def _fold_shard(source: Path | Stream, shares: Mapping[Path | Stream, int | None]) -> _ShardFold:
    share, path = shares[source], path_of(source)
    payloads = PayloadFold(SchemaFold(values=True, source=str(path)))
    faults: list[Fault] = []
    count = records = 0
    sampled = False
    with open_shard(source) as file:
        for item in read_records(file):
            if isinstance(item, Fault):
                count += 1
                faults += [item] if count <= _FAULTS_KEPT else []
            elif records == share:
                sampled = True
                break
            else:
                records += 1
                payloads.add(item)
    if not payloads.holds_examples:
        nothing = _loss(path, payloads, count, faults)
        return _ShardFold(fold=SchemaFold(values=True), loss=nothing, sampled=sampled)
    count += len(payloads.strangers)
    faults += payloads.strangers[:_FAULTS_KEPT]
    loss = _loss(path, payloads, count, faults) if count else None
    return _ShardFold(fold=payloads.schema, loss=loss, sampled=sampled)


def _loss(path: Path, payloads: PayloadFold, count: int, faults: Sequence[Fault]) -> ShardLoss:
    first = sorted(faults, key=lambda fault: fault.offset)[:_FAULTS_KEPT]
    kind = payloads.kind
    content = "no tf.train.Example"
    if kind is PayloadKind.EVENT:
        content = "TensorBoard events"
    elif kind is PayloadKind.UNKNOWN:
        ((name, _),) = payloads.described.most_common(1)
        content = _IN_WORDS.get(name, f"{name} payloads")
    elif kind is PayloadKind.EMPTY:
        content = "records without a byte" if not first else first[0].message
    return ShardLoss(path=path, payload=kind, content=content, count=count, faults=tuple(first))


_IN_WORDS = {
    "text": "text",
    "binary": "binary payloads, such as another protobuf message",
    "ExampleListWithContext": "ExampleListWithContext messages",
}


def _no_examples(losses: Sequence[ShardLoss]) -> ShardError:
    if not losses:
        return ShardError("no shards")
    first = losses[0]
    others = f" (and so for {len(losses) - 1} more)" if len(losses) > 1 else ""
    return ShardError(
        f"holds no tf.train.Example or SequenceExample{others}",
        path=first.path,
        found=first.content,
        hint=f"tfrtool inspect shard {shlex.quote(str(first.path))} shows what is there",
    )
