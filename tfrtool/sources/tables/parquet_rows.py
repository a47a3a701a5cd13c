"""Rows of Parquet, in bounded memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError


@contextmanager
def parquet_errors(path: str | Path) -> Iterator[None]:
    """Turn what pyarrow says of a file into a SourceError; errors of the system stay."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, ValueError, LookupError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        what = "the Parquet table is cut or damaged"
        raise SourceError(what, path=path, found=reason) from error


def rows_of_parquet(parquet: Any, columns: Sequence[str], most: int) -> Iterator[list[Any]]:
    """Yield the cells of each row in these columns, with so many rows held at a time."""
    for batch in parquet.iter_batches(most, columns=columns, use_threads=False):
        batch.validate(full=True)
        for values in zip(*map(batch.column, columns), strict=True):
            yield [value.as_py() for value in values]
