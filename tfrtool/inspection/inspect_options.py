"""The options of the verbs that inspect, verify and extract."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfrtool.declare import Options, option
from tfrtool.engines.engine import workers_option
from tfrtool.errors import UsageError
from tfrtool.features.type_spelling import check_types, parse_type_options
from tfrtool.records.framing import LocatedFault
from tfrtool.records.shards import Locations
from tfrtool.sources.annotations.annotation_kinds import ExportKind
from tfrtool.storage.arguments import Paths
from tfrtool.storage.progress import OnProgress, no_progress

if TYPE_CHECKING:
    from tfrtool.engines.engine import Engine
    from tfrtool.examples.arrow.messages import MessageColumns


@dataclass(frozen=True, kw_only=True)
class TypesOption(Options):
    """What features mean."""

    types: Mapping[str, str] | None = option(
        None,
        "Read a feature as this type, such as x:raw:uint8[@shape], x:tensor:float32 or x:bytes. "
        "Repeatable.",
        metavar="NAME:TYPE",
        group="Labels and features",
        cli="--type",
        repeat=True,
        parse=parse_type_options,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.types:
            check_types(self.types, as_stored=getattr(self, "as_stored", False))


@dataclass(frozen=True, kw_only=True)
class AsStoredOption(TypesOption):
    """What columns records have."""

    as_stored: bool = option(
        False,
        "Take features as the records store them, whatever features.json says.",
        group="Labels and features",
    )


@dataclass(frozen=True, kw_only=True)
class StoredOptions(AsStoredOption):
    """How records become rows."""

    explode: Sequence[str] | None = option(
        None,
        "Make a row for each item of this list, such as steps. Several lists are taken apart side "
        "by side.",
        metavar="FIELD[,FIELD]",
        parse=lambda text: text.split(","),
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.explode, str):
            object.__setattr__(self, "explode", [self.explode])


@dataclass(frozen=True, kw_only=True)
class ScanOptions(Options):
    """Where shards are read."""

    workers: int | None = workers_option()
    engine: Literal["local", "ray"] = option("local", "Run locally or on a Ray cluster.")
    engine_address: str | None = option(
        None, "HOST:PORT of the Ray cluster.  [default: $RAY_ADDRESS]", metavar="ADDRESS"
    )
    on_progress: OnProgress = option(no_progress, "called with the number of bytes read.", cli=None)

    def pool(self) -> "Engine":
        """Return the engine that these options mean."""
        from tfrtool.engines.pool import engine_of

        return engine_of(self.engine, self.engine_address, self.workers)


@dataclass(frozen=True, kw_only=True)
class CatOptions(StoredOptions):
    """Which records are wanted."""

    records: str | None = option(
        None,
        "Print these records of each shard, counted from 0.",
        metavar="5|10:20|0,7,9",
        group="Selection",
        common=True,
    )
    limit: int | None = option(
        None, "Print at most N records.", metavar="N", least=1, group="Selection", common=True
    )
    sample: int | None = option(
        None, "Print N random records.", metavar="N", least=1, group="Selection", common=True
    )
    seed: int = option(
        0,
        "Random seed for --sample.",
        metavar="N",
        least=-(2**63),
        most=2**63 - 1,
        group="Selection",
    )
    where: str | None = option(
        None,
        'Print only records that match an SQL condition, such as "label = 1 AND height > 64".',
        metavar="CONDITION",
        group="Selection",
        common=True,
    )
    sources: Paths | None = option(
        None, "what names the shards, such as their directory. None takes the files.", cli=None
    )
    proto: "MessageColumns | None" = option(
        None, "fields of the records' messages, for the condition.", cli=None
    )
    on_fault: Callable[[LocatedFault], None] = option(
        ..., "called with the damage that is met on the way, which is skipped.", cli=None
    )
    on_hop: Callable[[int], None] = option(
        lambda _: None,
        "called with the bytes of a shard in a store before a record, if there is no index.",
        cli=None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.records is not None and self.sample is not None:
            raise UsageError("--records and --sample can't be used together")


@dataclass(frozen=True, kw_only=True)
class SchemaOptions(ScanOptions):
    """How a schema is inferred."""

    sample: int | None = option(
        None,
        "Read only N records, evenly from the start of each shard.",
        metavar="N",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class StatsOptions(TypesOption, ScanOptions):
    """Statistics of what."""

    against: Locations | None = option(
        None, "Compare with these shards. Repeatable.", metavar="SHARDS", path="input", repeat=True
    )


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(ScanOptions):
    """How a dataset is summarized."""

    label: str | None = option(
        None,
        "Label feature, int64 or string.  [default: detected]",
        metavar="NAME",
        cli="--label-feature|--label",
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(ScanOptions):
    """What is verified."""

    images: bool = option(False, "Also decode every image and find duplicates.")
    schema: str | os.PathLike[str] | None = option(
        None,
        "Compare records with this schema, from inspect schema --emit schema, pbtxt or json.",
        metavar="FILE",
        path="input",
    )


@dataclass(frozen=True, kw_only=True)
class SheetOptions(TypesOption):
    """What is on a contact sheet."""

    overwrite: bool = option(False, "Replace an existing sheet.", group="Output")
    feature: str | None = option(
        None,
        "Feature with the images.  [default: detected]",
        metavar="NAME",
        group="Labels and features",
    )
    label: str | None = option(
        None,
        "Feature with the labels.  [default: detected]",
        metavar="NAME",
        group="Labels and features",
    )
    limit: int = option(
        100,
        "Maximum number of images, evenly from the start of each shard.",
        metavar="N",
        group="Images",
        least=1,
    )
    columns: int | None = option(
        None,
        "Number of columns.  [default: a roughly square sheet]",
        metavar="N",
        group="Images",
        least=1,
    )
    thumb: int = option(
        128,
        "Size of the thumbnails in pixels.",
        metavar="PX",
        group="Images",
        least=32,
        most=1024,
    )
    boxes: bool = option(
        False, "Draw annotated objects: boxes, class names, masks and keypoints.", group="Images"
    )
    on_progress: OnProgress = option(
        no_progress,
        "called after each image, with the maximum number of images as the total.",
        cli=None,
    )


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(TypesOption):
    """What to extract, and under which names."""

    feature: str | None = option(
        None, "String feature to extract.  [default: the image]", metavar="NAME"
    )
    by: str | None = option(
        None, "Feature that names the class folders.  [default: the label]", metavar="FEATURE"
    )
    name: str | None = option(
        None,
        "Feature that names the files.  [default: image/filename or similar]",
        metavar="FEATURE",
    )
    flat: bool = option(False, "Write all files directly into TARGET, without class folders.")
    limit: int | None = option(None, "Extract only the first N records.", metavar="N", least=1)
    annotations: ExportKind | None = option(
        None, "Also export the annotated objects in this format."
    )
    overwrite: bool = option(
        False, "Replace what an earlier extract wrote to TARGET, or the file of --out."
    )
    on_progress: OnProgress = option(
        no_progress, "called after each record with the number of bytes read.", cli=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flat and self.by is not None:
            raise UsageError("--by and --flat can't be used together")
        if self.annotations is not None and self.by is not None:
            raise UsageError("--by and --annotations can't be used together")
