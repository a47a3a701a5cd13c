"""The schema of several shards together: one fold a shard, in parallel, merged in order."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import engine_of
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import ShardError, UsageError
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.schema import Schema
from tfrtool.examples.schema_fold import FeatureStatistics, SchemaFold
from tfrtool.inspection.summary.shard_summary import EXAMPLES, PayloadFold
from tfrtool.inspection.summary.summary_json import feature_json, values_json
from tfrtool.records.framing import Fault, Record
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Stream, path_of, total_bytes
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress

_FAULTS_KEPT = 10
"""Faults that are kept of a shard; their number tells of the others."""

_WORTH_A_PROCESS = 8 * 1024 * 1024
"""Bytes that are folded with their values in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoss:
    """What is missing of a shard in the schema."""

    path: Path
    content: str | None  # what its payloads are, where they are no examples and none of them is in
    count: int  # of its faults, records that are no examples among them
    faults: tuple[Fault, ...]  # the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredSchema:
    """Schema inferred from the records of one or more shards.

    Attributes:
        shards: number of shards read.
        records: number of records included.
        payload: type of the payloads: SequenceExample if any record has feature lists.
        sampled: whether some records were not read.
        features: statistics of each feature.
        skipped: number of features, counted once per record, that are not included because there
            are too many different names.
        losses: what is missing, for each shard that is not fully included.
        schema: the narrowest schema that fits all records, except where types conflict.
    """

    shards: int
    records: int
    payload: PayloadKind
    sampled: bool
    features: tuple[FeatureStatistics, ...]
    skipped: int
    losses: tuple[ShardLoss, ...]
    schema: Schema

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``inspect schema --json`` prints."""
        return {
            "shards": self.shards,
            "records": self.records,
            "payload": self.payload.value,
            "sampled": self.sampled,
            "features": [feature_json(item) | values_json(item) for item in self.features],
            "skipped": self.skipped,
            "losses": to_json_values(self.losses),
        }


def infer_schema(
    shards: Locations,
    *,
    sample: int | None = None,
    workers: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    on_progress: OnProgress = no_progress,
) -> InferredSchema:
    """Infer one schema from all shards.

    Memory is bounded by the longest record, plus a fixed amount for each feature.

    Args:
        shards: files, glob patterns and directories, one or several; or a binary stream.
        sample: maximum number of records, taken from the start of each shard in equal shares. None
            reads all of them.
        workers: maximum number of worker processes. None uses one per core.
        engine: "local", or "ray" to run on a Ray cluster.
        engine_address: address of the cluster, HOST:PORT. None uses RAY_ADDRESS.
        on_progress: called with the number of bytes read.

    Raises:
        ShardError: a file can't be read, or no file contains Examples or SequenceExamples.
        UsageError: ``sample`` or ``workers`` is less than 1.
    """
    paths = locate_shards(shards).sources
    shares = sample_shares(paths, sample)
    # A shard that has no share of the sample is not even opened.
    chosen = [path for path, share in shares.items() if share != 0]
    sampled = len(chosen) < len(paths)
    total = SchemaFold(values=True)
    losses: list[ShardLoss] = []
    meter = Meter(on_progress, "reading", BYTES, total_bytes(chosen))
    with engine_of(engine, engine_address, workers) as pool:
        folds = map_folds(
            partial(ShardSchema, shares=shares),
            chosen,
            pool,
            _WORTH_A_PROCESS,
            one_pass=() if sample is None else chosen,
            on_counts=meter.add,
        )
        for part, loss, cut in folds:
            total.merge(part)
            losses += [] if loss is None else [loss]
            sampled |= cut
    meter.finish()
    if not paths:
        raise ShardError("no shards")
    if not total.records:
        raise no_examples(losses[0].path, losses[0].content)
    return InferredSchema(
        shards=len(paths),
        records=total.records,
        payload=PayloadKind.SEQUENCE_EXAMPLE if total.sequences else PayloadKind.EXAMPLE,
        sampled=sampled,
        features=total.features(),
        skipped=total.skipped,
        losses=tuple(losses),
        schema=total.schema(),
    )


def sample_shares(
    paths: Sequence[Path | Stream], sample: int | None
) -> dict[Path | Stream, int | None]:
    """Return how many of ``sample`` records each shard has, in shares that differ by 1 at most."""
    if sample is None:
        return dict.fromkeys(paths)
    if sample < 1:
        raise UsageError(f"--sample must be at least 1, got {sample}")
    count = len(paths)
    return {path: sample * (n + 1) // count - sample * n // count for n, path in enumerate(paths)}


def no_examples(path: Path, content: str | None) -> ShardError:
    """Return the error of shards that hold no Examples, of which this is the first."""
    return ShardError(
        "contains no tf.train.Example or SequenceExample",
        path=path,
        found=content,
        hint=f"run tfrtool inspect shard {shlex.quote(str(path))} to see what it contains",
    )


class ShardSchema:
    """A fold over what is read of one shard, of which its share of records is wanted, or all."""

    def __init__(
        self, source: Path | Stream, *, shares: Mapping[Any, int | None], part: bool = False
    ) -> None:
        """Begin with nothing."""
        self._path, self._share = path_of(source), shares[source]
        self._payloads = PayloadFold(SchemaFold(values=True, source=str(self._path)), part=part)
        self._faults = CappedList[Fault](_FAULTS_KEPT)
        self._cut = False  # whether there are more records

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Take in what is read."""
        records = 0
        for item in items:
            if isinstance(item, Fault):
                self._faults.add(item)
            elif records == self._share:
                self._cut = True
                break
            else:
                records += 1
                self._payloads.add(item)

    def merge(self, other: "ShardSchema", index: int) -> bool:
        """Take in a fold over a part, as `ShardFold` has it."""
        if not self._payloads.merge(other._payloads, index):
            return False
        self._faults.merge(later(other._faults, index))
        return True

    def found(self) -> tuple[SchemaFold, ShardLoss | None, bool]:
        """Return what was found: also what is lost, and whether it stopped early."""
        payloads, faults = self._payloads, self._faults
        kind, schema = payloads.kind, payloads.schema
        content = None
        if kind in EXAMPLES:
            faults.merge(payloads.unparseable)
            if not faults.count:
                return schema, None, self._cut
        else:
            schema, content = SchemaFold(values=True), kind.title
        if kind is PayloadKind.UNKNOWN:
            ((name, _),) = payloads.described.most_common(1)
            content = f"{name} payloads"
        elif kind is PayloadKind.EMPTY:
            content = "empty records"
            if faults.kept:
                content = f"no intact records ({faults.kept[0].message})"
        kept = tuple(sorted(faults.kept, key=lambda fault: fault.offset))
        loss = ShardLoss(path=self._path, content=content, count=faults.count, faults=kept)
        return schema, loss, self._cut
