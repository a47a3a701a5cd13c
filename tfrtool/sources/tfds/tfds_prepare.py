"""Having TFDS prepare a dataset, in quiet, where it can download it at all."""

import contextlib
import io
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from tfrtool.errors import SourceError, printable
from tfrtool.sources.items import Starting
from tfrtool.storage.opening import read_bounded

_PATIENCE = 3.0
"""Seconds for a host to answer; TFDS itself tries for three minutes, and behind a firewall that
answers nothing for half an hour."""

_MOST_HOSTS = 3
_PORTS = {"http": 80, "https": 443, "ftp": 21}
_REASON_SHOWN = 300
"""Characters; TFDS' own messages go on for pages."""


def prepared_builder(notation: str, starting: Starting) -> Any:
    """Return the builder of a dataset that is on disk, and prepare it first if it isn't."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise SourceError(f"tensorflow_datasets can't be imported: {error}") from error
    try:
        with _quiet(tfds):
            builder = tfds.builder(notation)
            if builder.is_prepared():
                return builder
    except Exception as error:  # builders are anyone's code
        if type(error).__name__ == "DatasetNotFoundError":  # whose text lists all there are
            raise SourceError(f"no TFDS dataset {notation!r}") from error
        raise SourceError(f"TFDS can't open {notation}: {_reason(error)}") from error
    if hosts := missing_hosts(builder):
        raise SourceError(
            f"{notation} is not prepared here and can't be downloaded from {hosts}",
            path=builder.data_dir,
            hint="set TFDS_DATA_DIR if it is prepared elsewhere",
        )
    with starting():
        import tensorflow as tf

        tf.config.list_logical_devices()  # TFDS looks for them when it encodes the first image
    try:
        with _quiet(tfds):
            builder.download_and_prepare()
    except Exception as error:
        raise SourceError(
            f"TFDS can't prepare {notation}: {_reason(error)}",
            path=builder.data_dir,
            hint="set TFDS_DATA_DIR if it is prepared elsewhere",
        ) from error
    return builder


def _reason(error: Exception) -> str:
    """Return what an error of other people's code says, in a line."""
    lines = str(error).strip().splitlines() or [""]
    text = printable(lines[0])
    if built := re.fullmatch(r"Failed to construct dataset .*?\}\": (.*)", text):
        return built[1][:_REASON_SHOWN]
    return f"{type(error).__name__}: {text[:_REASON_SHOWN]}{'...' if text[_REASON_SHOWN:] else ''}"


def missing_hosts(builder: Any) -> str | None:
    """Return the hosts of a dataset's downloads, and why, if none of the first can be reached.

    Not asked are those of what TFDS has downloaded before, or users download by hand, and proxies.
    """
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS or getproxies():
        return None
    reasons: dict[str, str] = {}
    for parts in map(urlsplit, set(builder.url_infos or ()) - _downloaded(builder.data_dir_root)):
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
        if host and port and host not in reasons and len(reasons) < _MOST_HOSTS:
            try:
                socket.create_connection((host, port), timeout=_PATIENCE).close()
            except (OSError, ValueError) as error:  # a ValueError: no name that can be looked up
                reasons[host] = str(getattr(error, "strerror", None) or error).lower()
            else:
                return None
    return ", ".join(f"{host} ({reason})" for host, reason in sorted(reasons.items())) or None


def _downloaded(root: str | os.PathLike[str]) -> set[str]:
    """Return the URLs that TFDS has downloaded, as the notes beside its downloads say."""
    urls: set[str] = set()
    for path in Path(root, "downloads").rglob("*.INFO"):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            urls.update(map(str, json.loads(read_bounded(path)).get("urls", ())))
    return urls


@contextlib.contextmanager
def _quiet(tfds: Any) -> Iterator[None]:
    """Let TFDS show its plan and progress on a terminal only, never on stdout.

    Elsewhere its bars and warnings would fill a log; what fails it raises.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    loggers = [logging.getLogger(name) for name in ("absl", "urllib3")]
    levels = [logger.level for logger in loggers]
    tfds.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
