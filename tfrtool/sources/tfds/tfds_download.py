"""Whether TFDS can download a dataset at all, and the quiet in which it does."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tfrtool.errors import os_reason
from tfrtool.storage.opening import read_bounded

_PATIENCE = 5.0
"""Seconds for a host to answer; TFDS itself tries for three minutes, and behind a firewall that
answers nothing for half an hour."""

_MOST_HOSTS = 20
_PORTS = {"http": 80, "https": 443, "ftp": 21}


def missing_hosts(builder: Any) -> str | None:
    """Return the hosts of a dataset's downloads, and why, if not one of them can be reached.

    What TFDS has downloaded before needs no host, nor does what users download by hand.
    """
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return None
    urls = set(builder.url_infos or ()) - set(_downloaded(Path(builder.data_dir_root)))
    hosts = sorted({address for url in urls if (address := _address(url)) is not None})
    if not hosts:
        return None
    reasons: dict[str, str | None] = {}

    def knock(host: str, port: int) -> None:
        try:
            socket.create_connection((host, port), timeout=_PATIENCE).close()
        except OSError as error:
            reasons[host] = os_reason(error)
        except ValueError:  # no name that can be looked up
            reasons[host] = "not a host"
        else:
            reasons[host] = None

    # Looking up a name can't be interrupted: threads that are left to themselves do it.
    threads = [
        threading.Thread(target=knock, args=host, daemon=True) for host in hosts[:_MOST_HOSTS]
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 2 * _PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found = {host: reasons.get(host, "no answer") for host, _ in hosts[:_MOST_HOSTS]}
    if None in found.values():
        return None
    return ", ".join(f"{host} ({reason})" for host, reason in found.items())


def _downloaded(root: Path) -> Iterator[str]:
    """Yield the URLs that TFDS has downloaded, as the notes beside its downloads say."""
    for pattern in ("*.INFO", "*/*.INFO", "*/*/*.INFO"):
        for path in (root / "downloads").glob(pattern):
            with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
                yield from map(str, json.loads(read_bounded(path)).get("urls", ()))


def _address(url: str) -> tuple[str, int] | None:
    """Return the host and port that a URL is downloaded from, or its proxy's."""
    parts = urlsplit(url)
    try:
        if parts.hostname and not proxy_bypass(parts.hostname):
            proxy = getproxies().get(parts.scheme)
            parts = urlsplit(proxy) if proxy else parts
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # no URL
        return None
    return (parts.hostname, port) if parts.hostname and port else None


@contextlib.contextmanager
def quiet_tfds(tfds: Any) -> Iterator[None]:
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
