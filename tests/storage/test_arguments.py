"""Text and PathLike are paths; URLs and what else is given by mistake are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrtool.errors import UsageError
from tfrtool.storage.arguments import as_local_path, as_path, as_paths
from tfrtool.storage.remote_path import RemotePath


def test_paths() -> None:
    """One path is one path, as text too, and is not taken for its characters."""
    assert as_path("a/b") == Path("a/b")
    assert as_paths("/tmp/ds") == (Path("/tmp/ds"),)
    assert as_paths(["a", Path("b")]) == (Path("a"), Path("b"))


URLS = [
    "s3://b/x",
    "gs://b/a",
    "HTTPS://h/x",
    "hf://d",
    Path("s3://b/x"),
    Path("gs://b"),
    "x+y://z",
]


@pytest.mark.parametrize("url", URLS)
def test_url(url: str | Path) -> None:
    """A URL never becomes a local folder, not even after pathlib has had it."""
    path = as_path(url)
    assert isinstance(path, RemotePath)
    assert str(path).lower() == str(url).lower().replace("://", ":/").replace(":/", "://")
    with pytest.raises(UsageError, match="is a URL"):
        as_local_path(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://user:hidden@bucket/x", "s3://bucket/x"),
        ("https://hidden@h/x?a=1", "https://h/x"),
        ("s3://b/x//y", "s3://b/x//y"),
        ("s3://b/../y", "s3://b/../y"),
        ("s3:/", "s3://"),
        ("s3:///x", "s3:///x"),
        ("file:///x", "file:///x"),
    ],
)
def test_url_that_is_refused(url: str, shown: str) -> None:
    """Credentials in a URL are refused and not shown; so are keys that no path can stand for."""
    with pytest.raises(UsageError) as caught:
        as_path(url)
    assert caught.value.path == shown
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["C://x", "a:b", "s3", "tfds:mnist", "x:/y"])
def test_what_looks_like_a_url_only_from_afar(name: str) -> None:
    """Drive letters, colons and TFDS' names are no URLs."""
    assert as_path(name) == Path(name)


@pytest.mark.parametrize("value", ["", "a\0b", b"bytes", 5, None])
def test_no_path(value: object) -> None:
    """What can't be a path is an error of ours."""
    with pytest.raises(UsageError):
        as_path(value)  # type: ignore[arg-type]
