"""Which files hold images together with their labels."""

import os
from pathlib import Path

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.items import Source
from tfrtool.sources.samples.array_images import read_arrays
from tfrtool.sources.samples.parquet_images import read_parquet_images
from tfrtool.sources.samples.sample_source import sample_files
from tfrtool.sources.samples.web_dataset_tars import read_web_dataset
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.remote_path import is_url

_KINDS = (
    (".parquet", read_parquet_images),
    (".tar", read_web_dataset),
    (".npz", read_arrays),
)


def read_samples(argument: str, scratch: Path, options: SourceOptions) -> Source | None:
    """List such a file, or several that a folder or a pattern means; None for anything else."""
    one = [argument] if is_url(argument) or os.path.isfile(argument) else []  # noqa: PTH113
    for suffix, read in _KINDS:
        files = sample_files(argument, suffix) or [
            file for file in one if file.lower().endswith(suffix)
        ]
        if files:
            with os_errors_as(SourceError, argument):
                return read(files, argument, scratch, options)
    return None
