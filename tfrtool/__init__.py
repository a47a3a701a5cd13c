"""Create, inspect, repair, query, convert and train on TFRecord files.

Names are loaded on first use (PEP 562): importing the package is fast, and inspecting a shard does
not start TensorFlow. Type checkers read ``__init__.pyi``.
"""

__version__ = "0.1.0"

_HOMES = {
    "convert.append": "append",
    "convert.edit": "edit",
    "convert.diff": "diff",
    "convert.formats.conversion": "convert",
    "convert.filter_records": "filter_records",
    "convert.reshard": "reshard",
    "errors": "ClusterError CorruptShardError DatasetError SchemaError ShardError SourceError "
    "TfrtoolError TrainingError UsageError WeightsError WriteError",
    "examples.example": "encode_example",
    "examples.schema": "FeatureSpec Schema",
    "inspection.dataset.croissant": "croissant",
    "inspection.dataset.dataset_summary": "inspect_dataset",
    "inspection.extract.extract": "extract",
    "inspection.pictures.contact_sheet": "contact_sheet",
    "inspection.pictures.record_gallery": "show",
    "inspection.rows.decoded_records": "open_records",
    "inspection.rows.parsed_examples": "parse_example",
    "inspection.rows.read_rows": "read_records read_table",
    "inspection.schema.features_of": "Features",
    "inspection.schema.shard_schema": "infer_schema",
    "inspection.stats.stats": "stats",
    "inspection.summary.shard_summary": "inspect_shard",
    "inspection.verify.verify": "verify",
    "loading.bench": "bench",
    "loading.dataset": "Dataset",
    "loading.dataset_facts": "Split",
    "loading.open_dataset": "dataset=open_dataset",
    "records.count": "count=count_records",
    "records.framing": "Fault Record",
    "records.random_access": "Records",
    "records.repair": "repair=repair_shard",
    "records.shards": "Shard find_shards",
    "training.evaluation": "evaluate",
    "training.saved_model": "load_model",
    "training.prediction": "predict",
    "training.train": "train",
    "view.report": "report",
    "writing.write": "write",
}
"""Public names by module, with ``=`` before the name that one has there."""

_HOME_OF = {
    name: (f"tfrtool.{module}", inner or name)
    for module, names in _HOMES.items()
    for name, _, inner in (entry.partition("=") for entry in names.split())
}
_OLD = {
    "open": ("tfrtool.inspection.rows.decoded_records", "open_records"),
    "read": ("tfrtool.inspection.rows.read_rows", "read"),
    "filter": ("tfrtool.convert.filter_records", "filter_records"),
}
"""Old names, which stay for one release."""

__all__ = [*sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name) or _OLD.get(name)
    if home is None:
        raise AttributeError(f"module 'tfrtool' has no attribute {name!r}")
    import importlib  # takes a millisecond, in which Ctrl-C would show a traceback

    try:
        value = getattr(importlib.import_module(home[0]), home[1])
    except ModuleNotFoundError:
        from tfrtool.storage.extras import has_tensorflow, without_tensorflow

        if has_tensorflow():
            raise
        return without_tensorflow(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
