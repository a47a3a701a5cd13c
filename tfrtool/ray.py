"""Datasets of Ray Data: read from shards, and written as shards.

Import it with ``import tfrtool.ray``; it requires ``pip install "tfrtool[ray]"``.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import ray
from ray.data import Dataset, Datasource, ReadTask, read_datasource
from ray.data.block import BlockMetadata

from tfrtool.convert.formats.conversion import ConvertReport, convert
from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.features.type_spelling import check_types
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.inspection.rows.read_rows import RowBatches, on_fault_handler
from tfrtool.records.shards import find_shards
from tfrtool.storage.arguments import Paths, as_member, as_path
from tfrtool.storage.atomic_files import delete_leftovers, temporary_folder
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.run_options import Existing

__all__ = ["read", "write"]


def read(
    shards: Paths,
    *,
    columns: str | Sequence[str] = "all",
    lists: bool = False,
    as_stored: bool = False,
    types: Mapping[str, str] | None = None,
    on_fault: Literal["raise", "skip"] = "raise",
) -> Dataset:
    """Return the records of shards as a dataset of Ray Data, with a read task for each shard.

    Rows have the columns of `tfrtool.read_table`. If this program is connected to a cluster, its
    nodes find the columns, too, for which they read all shards.

    Args:
        shards: files, glob patterns, directories or URLs, one or several, which all nodes can read.
        columns: names of the features to decode, or "all".
        lists: whether a feature that some records don't have is a list in any case, where types are
            inferred.
        as_stored: whether columns are the features as records store them.
        types: types of features by name, as for `tfrtool.read_table`.
        on_fault: "raise" to stop at a damaged record, "skip" to skip it.

    Raises:
        ShardError: a file can't be read.
        UsageError: unknown column or ``on_fault``.
    """
    paths, handler = find_shards(shards), on_fault_handler(on_fault)
    workers = RayCluster() if ray.is_initialized() else None
    check_types(types, as_stored=as_stored)
    found = infer_columns(paths, lists=lists, as_stored=as_stored, types=types, workers=workers)
    if columns != "all":
        found = found.select([columns] if isinstance(columns, str) else columns)
    return read_datasource(
        _Shards([RowBatches(shards=(path,), columns=found, on_fault=handler) for path in paths])
    )


class _Shards(Datasource):  # type: ignore[misc]
    """A source with a read task for each shard."""

    def __init__(self, shards: Sequence[RowBatches]) -> None:
        super().__init__()
        self._shards = shards
        self._sizes = [rows.shards[0].stat().st_size for rows in shards]

    def estimate_inmemory_data_size(self) -> int:
        return sum(self._sizes)

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:  # noqa: ARG002
        return [
            ReadTask(
                partial(_tables, rows),
                BlockMetadata(
                    num_rows=None,
                    size_bytes=size,
                    exec_stats=None,
                    input_files=(str(rows.shards[0]),),
                ),
                schema=rows.schema,
            )
            for rows, size in zip(self._shards, self._sizes, strict=True)
        ]


def _tables(rows: RowBatches) -> Iterator[pa.Table]:
    empty = True
    for batch in rows:
        yield pa.Table.from_batches([batch])
        empty = False
    if empty:
        yield rows.schema.empty_table()


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    staging: str | os.PathLike[str] | None = None,
    existing: Literal["refuse", "overwrite"] = "refuse",
) -> ConvertReport:
    """Write a dataset of Ray Data as a dataset of TFRecord shards.

    The nodes write their blocks to a temporary folder as Parquet. These files are then converted on
    the nodes, verified, and published together, as by `tfrtool.convert`.

    Args:
        dataset: the rows. Columns hold numbers, text, bytes, or lists of them.
        target: directory or URL to write to.
        staging: a folder that all nodes can write to, for the temporary files; None is the folder
            that contains ``target``. A target in a store requires one.
        existing: "refuse" to raise an error if the target exists, "overwrite" to replace a dataset
            that tfrtool wrote.

    Raises:
        UsageError: the target exists, or a target in a store lacks ``staging``.
        SchemaError: a column has no TFRecord equivalent.
        WriteError: a file can't be written.
    """
    folder, policy = as_path(target), as_member(Existing, existing, "existing")
    if policy is Existing.RESUME:
        raise UsageError("existing must be refuse or overwrite, got resume")
    if staging is None and isinstance(folder, RemotePath):
        hint = "pass staging=FOLDER, a folder that all nodes can write to"
        raise UsageError(
            "a target in a store requires a folder for staging", path=folder, hint=hint
        )
    stack = ExitStack()
    with os_errors_as(WriteError, folder, "can't be written to"):
        if policy is Existing.REFUSE and folder.is_dir() and next(iter(folder.iterdir()), None):
            raise UsageError("directory is not empty", path=folder)
        parent = Path(folder.parent if staging is None else staging).absolute()
        parent.mkdir(parents=True, exist_ok=True)
        delete_leftovers(parent / folder.name)
        blocks = stack.enter_context(temporary_folder(parent / folder.name)) / "blocks"
    with stack:
        dataset.write_parquet(str(blocks))
        return convert(blocks, folder, engine="ray", existing=policy.value)
