"""Write, inspect and train from TFRecord files.

Names are loaded on first use (PEP 562), so that importing the package costs nothing, and looking
into a shard doesn't start TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfrtool.errors import (
        CorruptShardError,
        DatasetError,
        SchemaError,
        ShardError,
        SourceError,
        TfrtoolError,
        UsageError,
        WeightsError,
        WriteError,
    )
    from tfrtool.examples.example import (
        DType,
        Example,
        Feature,
        PayloadKind,
        classify_payload,
        decode_example,
        encode_example,
    )
    from tfrtool.examples.parsing import Misfit, Parsed, parse_example
    from tfrtool.examples.schema import FeatureSpec, Schema
    from tfrtool.inspection.shard import InspectOptions, ShardSummary, inspect_shard
    from tfrtool.loading.dataset import Dataset, Split, open_dataset
    from tfrtool.loading.options import Cache, Holdout, LoadOptions, Recipe, Rescale
    from tfrtool.loading.pipeline import load
    from tfrtool.records.compression import Compression, detect_compression
    from tfrtool.records.count import count_records
    from tfrtool.records.crc import crc32c, masked_crc32c
    from tfrtool.records.framing import Fault, FaultKind, Record, frame
    from tfrtool.records.names import ShardName
    from tfrtool.records.reader import ReadOptions, read_records
    from tfrtool.records.shards import Shard, find_shards
    from tfrtool.training.options import ModelName, RescaleTo, Trainable, TrainOptions
    from tfrtool.training.report import EpochReport, TrainPlan, TrainReport
    from tfrtool.training.train import train
    from tfrtool.writing.options import SplitShare, WriteOptions
    from tfrtool.writing.report import WriteReport
    from tfrtool.writing.write import write_dataset

__version__ = "0.1.0"

_HOMES = {
    "tfrtool.errors": (
        "CorruptShardError",
        "DatasetError",
        "SchemaError",
        "ShardError",
        "SourceError",
        "TfrtoolError",
        "UsageError",
        "WeightsError",
        "WriteError",
    ),
    "tfrtool.examples.example": (
        "DType",
        "Example",
        "Feature",
        "PayloadKind",
        "classify_payload",
        "decode_example",
        "encode_example",
    ),
    "tfrtool.examples.parsing": ("Misfit", "Parsed", "parse_example"),
    "tfrtool.examples.schema": ("FeatureSpec", "Schema"),
    "tfrtool.inspection.shard": ("InspectOptions", "ShardSummary", "inspect_shard"),
    "tfrtool.loading.dataset": ("Dataset", "Split", "open_dataset"),
    "tfrtool.loading.options": ("Cache", "Holdout", "LoadOptions", "Recipe", "Rescale"),
    "tfrtool.loading.pipeline": ("load",),
    "tfrtool.records.compression": ("Compression", "detect_compression"),
    "tfrtool.records.count": ("count_records",),
    "tfrtool.records.crc": ("crc32c", "masked_crc32c"),
    "tfrtool.records.framing": ("Fault", "FaultKind", "Record", "frame"),
    "tfrtool.records.names": ("ShardName",),
    "tfrtool.records.reader": ("ReadOptions", "read_records"),
    "tfrtool.records.shards": ("Shard", "find_shards"),
    "tfrtool.training.options": ("ModelName", "RescaleTo", "Trainable", "TrainOptions"),
    "tfrtool.training.report": ("EpochReport", "TrainPlan", "TrainReport"),
    "tfrtool.training.train": ("train",),
    "tfrtool.writing.options": ("SplitShare", "WriteOptions"),
    "tfrtool.writing.report": ("WriteReport",),
    "tfrtool.writing.write": ("write_dataset",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Cache",
    "Compression",
    "CorruptShardError",
    "DType",
    "Dataset",
    "DatasetError",
    "EpochReport",
    "Example",
    "Fault",
    "FaultKind",
    "Feature",
    "FeatureSpec",
    "Holdout",
    "InspectOptions",
    "LoadOptions",
    "Misfit",
    "ModelName",
    "Parsed",
    "PayloadKind",
    "ReadOptions",
    "Recipe",
    "Record",
    "Rescale",
    "RescaleTo",
    "Schema",
    "SchemaError",
    "Shard",
    "ShardError",
    "ShardName",
    "ShardSummary",
    "SourceError",
    "Split",
    "SplitShare",
    "TfrtoolError",
    "TrainOptions",
    "TrainPlan",
    "TrainReport",
    "Trainable",
    "UsageError",
    "WeightsError",
    "WriteError",
    "WriteOptions",
    "WriteReport",
    "classify_payload",
    "count_records",
    "crc32c",
    "decode_example",
    "detect_compression",
    "encode_example",
    "find_shards",
    "frame",
    "inspect_shard",
    "load",
    "masked_crc32c",
    "open_dataset",
    "parse_example",
    "read_records",
    "train",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tfrtool' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
