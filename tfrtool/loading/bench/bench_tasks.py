"""What a process of its own measures for the benchmark, and what it gives back."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import LoadOptions

__all__ = ["BenchStage", "EpochTiming", "PartsRun", "PartsTask", "StageRun", "StageTask", "Timing"]


class BenchStage(enum.Enum):
    """A pipeline: each of the published ones has what those before it have, and one thing more.

    NAIVE reads one record after the other; PREFETCH is the notebooks' whole pipeline; TFRTOOL is
    ours. The values are those of the JSON output.
    """

    NAIVE = "naive"
    INTERLEAVE = "interleave"
    PARALLEL_MAP = "parallel map"
    CACHE = "cache"
    PREFETCH = "prefetch"
    TFRTOOL = "tfrtool"

    @property
    def published(self) -> tuple[str, ...]:
        """The names of what this one does beyond the naive pipeline; none of ours are among it."""
        names = [stage.value for stage in BenchStage]
        return tuple(names[1 : names.index(self.value) + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long something took.

    Attributes:
        seconds: on the wall.
        cpu: seconds of CPU, of all threads.
        system: how many of them the kernel took, for fresh memory and for files.
    """

    seconds: float
    cpu: float
    system: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTiming:
    """How long an epoch took, from asking for its iterator until that is gone.

    Attributes:
        whole: all of it; in the first epoch, building the pipeline is part of it.
        first_batch: the seconds until the first batch.
        ending: the seconds from the last batch until the iterator was gone.
        idle: how many of the cores had nothing to do, for this process or any other, on average;
            None where that can't be told.
    """

    whole: Timing
    first_batch: float
    ending: float
    idle: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A pipeline to measure.

    Attributes:
        dataset: what it reads.
        options: how; the published pipelines have of it what `load_published` says.
        stage: which pipeline.
        epochs: how many epochs, 2 or more.
    """

    dataset: Dataset
    options: LoadOptions
    stage: BenchStage
    epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """What came of a `StageTask`.

    Attributes:
        images: in an epoch.
        labels: the sum of an epoch's labels.
        epochs: the timing of each.
        memory: by how much the process grew at its largest, in bytes.
    """

    images: int
    labels: int
    epochs: tuple[EpochTiming, ...]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsTask:
    """The work on a record, to be measured piece by piece.

    Attributes:
        dataset: what is read.
        options: how.
        images: at least so many are measured, the first ones again if there are fewer.
        rounds: how often each piece is measured, in turn with the others.
    """

    dataset: Dataset
    options: LoadOptions
    images: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRun:
    """What came of a `PartsTask`: CPU seconds of an image, one thread at work.

    Attributes:
        reading: reading records that are in the page cache, and inflating them.
        parsing: parsing them.
        decoding: decoding images at the size that they have.
        resizing: scaling them, rounding, and checking labels.
        raw: all of the above where shards hold raw pixels of the right size; None where they do.
        cold: seconds on the wall of reading an image's record, interleaved, once the shards are
            out of the page cache; None where they can't be put out of it.
        images: how many images were measured.
    """

    reading: float
    parsing: float
    decoding: float
    resizing: float
    raw: float | None
    cold: float | None
    images: int

    @property
    def whole(self) -> float:
        """CPU seconds of an image up to where it can be cached."""
        return self.reading + self.parsing + self.decoding + self.resizing
