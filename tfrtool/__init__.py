"""Write, inspect and train from TFRecord files.

Names are loaded on first use (PEP 562), so that importing the package costs nothing, and looking
into a shard doesn't start TensorFlow.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any

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
    from tfrtool.examples.inference import SchemaFold
    from tfrtool.examples.parsing import Misfit, Parsed, parse_example
    from tfrtool.examples.schema import FeatureSpec, Schema
    from tfrtool.examples.statistics import FeatureStatistics, ValueStatistics
    from tfrtool.inspection.dataset.dataset_summary import DatasetSummary, inspect_dataset
    from tfrtool.inspection.extract.extract import extract
    from tfrtool.inspection.extract.extract_report import ExtractReport
    from tfrtool.inspection.pictures.contact_sheet import contact_sheet
    from tfrtool.inspection.schema.shard_schema import InferredSchema, infer_schema
    from tfrtool.inspection.summary.shard_summary import ShardSummary, inspect_shard
    from tfrtool.inspection.verify.verify import VerifyReport, verify
    from tfrtool.loading.bench.bench import bench
    from tfrtool.loading.bench.bench_report import BenchReport
    from tfrtool.loading.dataset.dataset import Dataset, Split
    from tfrtool.loading.dataset.dataset import open_dataset as dataset
    from tfrtool.records.compression import Compression, detect_compression
    from tfrtool.records.count import count_records
    from tfrtool.records.crc import crc32c, masked_crc32c
    from tfrtool.records.framing import Fault, FaultKind, Record, frame
    from tfrtool.records.names import ShardName
    from tfrtool.records.random_access import Records
    from tfrtool.records.random_access import open_records as open  # noqa: A004
    from tfrtool.records.reader import ReadOptions, read_records
    from tfrtool.records.repair import LostRange, RepairReport, repair_shard
    from tfrtool.records.shard_sets import ShardSet, group_shards
    from tfrtool.records.shards import Shard, find_shards
    from tfrtool.training.features.features_precision import Precision
    from tfrtool.training.models.saved_model import SavedModel, load_saved
    from tfrtool.training.predict.predict import predict
    from tfrtool.training.predict.prediction import (
        Prediction,
        PredictOptions,
        Unreadable,
        find_images,
    )
    from tfrtool.training.run.compare import Comparison, train_and_compare
    from tfrtool.training.run.train import train
    from tfrtool.training.run.train_options import ModelName, RescaleTo, Trainable, TrainOptions
    from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport
    from tfrtool.writing.write import write
    from tfrtool.writing.write_report import WriteReport

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
    "tfrtool.examples.inference": ("SchemaFold",),
    "tfrtool.examples.parsing": ("Misfit", "Parsed", "parse_example"),
    "tfrtool.examples.schema": ("FeatureSpec", "Schema"),
    "tfrtool.examples.statistics": ("FeatureStatistics", "ValueStatistics"),
    "tfrtool.inspection.pictures.contact_sheet": ("contact_sheet",),
    "tfrtool.inspection.dataset.dataset_summary": (
        "DatasetSummary",
        "inspect_dataset",
    ),
    "tfrtool.inspection.extract.extract": ("extract",),
    "tfrtool.inspection.extract.extract_report": ("ExtractReport",),
    "tfrtool.inspection.schema.shard_schema": ("InferredSchema", "infer_schema"),
    "tfrtool.inspection.summary.shard_summary": ("ShardSummary", "inspect_shard"),
    "tfrtool.inspection.verify.verify": ("VerifyReport", "verify"),
    "tfrtool.loading.bench.bench": ("bench",),
    "tfrtool.loading.bench.bench_report": ("BenchReport",),
    "tfrtool.loading.dataset.dataset": ("Dataset", "Split", "dataset"),
    "tfrtool.records.compression": ("Compression", "detect_compression"),
    "tfrtool.records.count": ("count_records",),
    "tfrtool.records.crc": ("crc32c", "masked_crc32c"),
    "tfrtool.records.framing": ("Fault", "FaultKind", "Record", "frame"),
    "tfrtool.records.names": ("ShardName",),
    "tfrtool.records.random_access": ("Records", "open"),
    "tfrtool.records.reader": ("ReadOptions", "read_records"),
    "tfrtool.records.repair": ("LostRange", "RepairReport", "repair_shard"),
    "tfrtool.records.shard_sets": ("ShardSet", "group_shards"),
    "tfrtool.records.shards": ("Shard", "find_shards"),
    "tfrtool.training.run.compare": ("Comparison", "train_and_compare"),
    "tfrtool.training.features.features_precision": ("Precision",),
    "tfrtool.training.run.train_options": ("ModelName", "RescaleTo", "Trainable", "TrainOptions"),
    "tfrtool.training.predict.predict": ("predict",),
    "tfrtool.training.predict.prediction": (
        "Prediction",
        "PredictOptions",
        "Unreadable",
        "find_images",
    ),
    "tfrtool.training.run.train_report": ("EpochReport", "TrainPlan", "TrainReport"),
    "tfrtool.training.models.saved_model": ("SavedModel", "load_saved"),
    "tfrtool.training.run.train": ("train",),
    "tfrtool.writing.write_report": ("WriteReport",),
    "tfrtool.writing.write": ("write",),
}
_RENAMED = {"dataset": "open_dataset", "open": "open_records"}
"""Names that would hide a builtin where they are defined."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BenchReport",
    "Comparison",
    "Compression",
    "CorruptShardError",
    "DType",
    "Dataset",
    "DatasetError",
    "DatasetSummary",
    "EpochReport",
    "Example",
    "ExtractReport",
    "Fault",
    "FaultKind",
    "Feature",
    "FeatureSpec",
    "FeatureStatistics",
    "InferredSchema",
    "LostRange",
    "Misfit",
    "ModelName",
    "Parsed",
    "PayloadKind",
    "Precision",
    "PredictOptions",
    "Prediction",
    "ReadOptions",
    "Record",
    "Records",
    "RepairReport",
    "RescaleTo",
    "SavedModel",
    "Schema",
    "SchemaError",
    "SchemaFold",
    "Shard",
    "ShardError",
    "ShardName",
    "ShardSet",
    "ShardSummary",
    "SourceError",
    "Split",
    "TfrtoolError",
    "TrainOptions",
    "TrainPlan",
    "TrainReport",
    "Trainable",
    "Unreadable",
    "UsageError",
    "ValueStatistics",
    "VerifyReport",
    "WeightsError",
    "WriteError",
    "WriteReport",
    "bench",
    "classify_payload",
    "contact_sheet",
    "count_records",
    "crc32c",
    "dataset",
    "decode_example",
    "detect_compression",
    "encode_example",
    "extract",
    "find_images",
    "find_shards",
    "frame",
    "group_shards",
    "infer_schema",
    "inspect_dataset",
    "inspect_shard",
    "load_saved",
    "masked_crc32c",
    "open",
    "parse_example",
    "predict",
    "read_records",
    "repair_shard",
    "train",
    "train_and_compare",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tfrtool' has no attribute {name!r}")
    import importlib  # takes a millisecond, in which Ctrl-C would show a traceback

    value = getattr(importlib.import_module(_HOME_OF[name]), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
