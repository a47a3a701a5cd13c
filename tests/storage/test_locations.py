"""Text and PathLike are paths; URLs and what else is given by mistake are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrtool.errors import UsageError
from tfrtool.storage.locations import as_path, as_paths


def test_paths() -> None:
    """One path is one path, as text too, and is not taken for its characters."""
    assert as_path("a/b") == Path("a/b")
    assert as_paths("/tmp/ds") == (Path("/tmp/ds"),)
    assert as_paths(["a", Path("b")]) == (Path("a"), Path("b"))


@pytest.mark.parametrize(
    "url",
    ["s3://b/x", "gs://b/a", "HTTPS://h/x", "hf://d", Path("s3://b/x"), Path("gs://b"), "x+y://z"],
)
def test_url_is_refused(url: str | Path) -> None:
    """A URL never becomes a local folder, not even after pathlib has had it."""
    with pytest.raises(UsageError, match="is a URL"):
        as_path(url)


@pytest.mark.parametrize("name", ["C://x", "a:b", "s3", "tfds:mnist", "x:/y"])
def test_what_looks_like_a_url_only_from_afar(name: str) -> None:
    """Drive letters, colons and TFDS' names are no URLs."""
    assert as_path(name) == Path(name)


@pytest.mark.parametrize("value", ["", "a\0b", b"bytes", 5, None])
def test_no_path(value: object) -> None:
    """What can't be a path is an error of ours."""
    with pytest.raises(UsageError):
        as_path(value)  # type: ignore[arg-type]
