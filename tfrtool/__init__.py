"""Create, inspect, repair, query, convert and train on TFRecord files.

Names are loaded on first use (PEP 562): importing the package is fast, and inspecting a shard does
not start TensorFlow.
"""

TYPE_CHECKING = False  # as in typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any

    from tfrtool.convert.append import append
    from tfrtool.convert.diff import diff
    from tfrtool.convert.edit import edit
    from tfrtool.convert.filter_records import filter_records as filter  # noqa: A004
    from tfrtool.convert.formats.conversion import convert
    from tfrtool.convert.reshard import reshard
    from tfrtool.errors import (
        ClusterError,
        CorruptShardError,
        DatasetError,
        SchemaError,
        ShardError,
        SourceError,
        TfrtoolError,
        TrainingError,
        UsageError,
        WeightsError,
        WriteError,
    )
    from tfrtool.examples.example import encode_example
    from tfrtool.examples.parsing import parse_example
    from tfrtool.examples.schema import FeatureSpec, Schema
    from tfrtool.inspection.dataset.croissant import croissant
    from tfrtool.inspection.dataset.dataset_summary import inspect_dataset
    from tfrtool.inspection.extract.extract import extract
    from tfrtool.inspection.pictures.contact_sheet import contact_sheet
    from tfrtool.inspection.rows.read_rows import open_rows as open  # noqa: A004
    from tfrtool.inspection.rows.read_rows import read
    from tfrtool.inspection.schema.shard_schema import infer_schema
    from tfrtool.inspection.stats.stats import stats
    from tfrtool.inspection.summary.shard_summary import inspect_shard
    from tfrtool.inspection.verify.verify import verify
    from tfrtool.loading.bench import bench
    from tfrtool.loading.dataset import Dataset, Split
    from tfrtool.loading.open_dataset import open_dataset as dataset
    from tfrtool.records.count import count_records as count
    from tfrtool.records.framing import Fault, Record
    from tfrtool.records.random_access import Records
    from tfrtool.records.repair import repair_shard as repair
    from tfrtool.records.shards import Shard, find_shards
    from tfrtool.training.evaluate.evaluate import evaluate
    from tfrtool.training.models.saved_model import load_model
    from tfrtool.training.predict.predict import predict
    from tfrtool.training.run.train import train
    from tfrtool.view.report import report
    from tfrtool.writing.write import write

__version__ = "0.1.0"

_HOMES = {
    "tfrtool.convert.append": "append",
    "tfrtool.convert.edit": "edit",
    "tfrtool.convert.diff": "diff",
    "tfrtool.convert.formats.conversion": "convert",
    "tfrtool.convert.filter_records": "filter",
    "tfrtool.convert.reshard": "reshard",
    "tfrtool.errors": "ClusterError CorruptShardError DatasetError SchemaError ShardError "
    "SourceError TfrtoolError TrainingError UsageError WeightsError WriteError",
    "tfrtool.examples.example": "encode_example",
    "tfrtool.examples.parsing": "parse_example",
    "tfrtool.examples.schema": "FeatureSpec Schema",
    "tfrtool.inspection.dataset.croissant": "croissant",
    "tfrtool.inspection.dataset.dataset_summary": "inspect_dataset",
    "tfrtool.inspection.extract.extract": "extract",
    "tfrtool.inspection.pictures.contact_sheet": "contact_sheet",
    "tfrtool.inspection.rows.read_rows": "open read",
    "tfrtool.inspection.schema.shard_schema": "infer_schema",
    "tfrtool.inspection.stats.stats": "stats",
    "tfrtool.inspection.summary.shard_summary": "inspect_shard",
    "tfrtool.inspection.verify.verify": "verify",
    "tfrtool.loading.bench": "bench",
    "tfrtool.loading.dataset": "Dataset Split",
    "tfrtool.loading.open_dataset": "dataset",
    "tfrtool.records.count": "count",
    "tfrtool.records.framing": "Fault Record",
    "tfrtool.records.random_access": "Records",
    "tfrtool.records.repair": "repair",
    "tfrtool.records.shards": "Shard find_shards",
    "tfrtool.training.evaluate.evaluate": "evaluate",
    "tfrtool.training.models.saved_model": "load_model",
    "tfrtool.training.predict.predict": "predict",
    "tfrtool.training.run.train": "train",
    "tfrtool.view.report": "report",
    "tfrtool.writing.write": "write",
}
_RENAMED = {
    "count": "count_records",
    "dataset": "open_dataset",
    "open": "open_rows",
    "filter": "filter_records",
    "repair": "repair_shard",
}
"""Names that would hide something else where they are defined."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ClusterError", "CorruptShardError", "Dataset", "DatasetError", "Fault", "FeatureSpec",
    "Record", "Records", "Schema", "SchemaError", "Shard", "ShardError", "SourceError", "Split",
    "TfrtoolError", "TrainingError", "UsageError", "WeightsError", "WriteError", "append", "bench",
    "contact_sheet", "convert", "count", "croissant", "dataset", "diff", "edit", "encode_example",
    "evaluate", "extract", "filter", "find_shards", "infer_schema", "inspect_dataset",
    "inspect_shard", "load_model", "open", "parse_example", "predict", "read", "repair", "report",
    "reshard", "stats", "train", "verify", "write",
]  # fmt: skip


def __getattr__(name: str) -> "Any":
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tfrtool' has no attribute {name!r}")
    import importlib  # takes a millisecond, in which Ctrl-C would show a traceback

    value = getattr(importlib.import_module(_HOME_OF[name]), _RENAMED.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
