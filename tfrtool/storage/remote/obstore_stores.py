"""Object stores and web servers as obstore has them."""

import errno
import os
import re
import time
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from obstore import store as stores

from tfrtool.errors import UsageError, printable

_RETRIES: Any = {
    "max_retries": 10_000,  # pauses are drawn at random: only the time is a limit
    "backoff": {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
"""How requests are repeated that met a 5xx, or no server."""

_PATIENCE, _SECONDS = "TFRTOOL_STORE_SECONDS", 30.0
"""For how long they are repeated: the variable, and what holds without it."""

_ANSWER_SECONDS = 60
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_MOST_CHECKED = 65_536
"""Keys of a web server whose redirects are remembered as checked."""

_PORTS = {"http": 80, "https": 443}
_IN_PATHS = "/!$&'()*+,;=:@[]|^"
_SHOWN = 300

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def library_for(scheme: str, place: str, query: str) -> Any:
    """Return a bucket, a container or a host, which finds its credentials by itself."""
    url = f"{scheme}://{place}" + (f"?{query}" if query else "")
    options: dict[str, Any] = {"timeout": "60s", "connect_timeout": "10s"}
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS.get(scheme, ()))), url)
    allowed = [os.environ.get(f"{name}_ALLOW_HTTP", "") for name in ("AWS", "GOOGLE", "AZURE")]
    if endpoint.startswith("http://") or "true" in map(str.lower, allowed):
        options["allow_http"] = True
    retries = {**_RETRIES, "retry_timeout": _patience()}
    given: Any = {"client_options": options, "retry_config": retries}
    if scheme == "s3" and not any(map(os.environ.get, _CREDENTIALS)) and find_spec("boto3"):
        given |= _profile()
    if scheme == "az":
        return stores.AzureStore(place, **given)
    store = stores.from_url(url, **given)
    return _WebServer(f"{scheme}://{place}", query, store) if scheme.startswith("http") else store


class _WebServer:
    """A web server that is read with obstore, which would follow a redirect to any host.

    Before a key is first read, the server is asked where its URL leads.
    """

    def __init__(self, url: str, query: str, store: Any) -> None:
        self._url, self._query, self._store = url, query, store
        self._check = lru_cache(maxsize=_MOST_CHECKED)(self._check_redirects)

    def head(self, key: str) -> Any:
        """Return what there is to know of a file."""
        self._check(key)
        return self._store.head(key)

    def get(self, key: str, options: Any) -> Any:
        """Return a range of a file."""
        self._check(key)
        return self._store.get(key, options=options)

    def _check_redirects(self, key: str) -> None:
        """Raise an `OSError` if the server redirects a key to another host, or to plain http."""
        named = f"{self._url}/{quote(key, safe=_IN_PATHS)}"
        url = f"{named}?{self._query}" if self._query else named
        for _ in range(_MOST_REDIRECTS):
            location = _location(url, named)
            if location is None:
                return
            # As obstore reads it: backslashes are slashes, and two of them or more begin a host.
            target = urljoin(url, re.sub(r"^/{2,}", "//", location.replace("\\", "/")))
            if not _is_same_host(url, target):
                parts = urlsplit(target)
                host = parts.netloc.rpartition("@")[2]
                shown = printable(f"{parts.scheme}://{host}{parts.path}"[:_SHOWN])
                what = f"the server redirects to {shown}; use that URL if you trust it"
                raise OSError(errno.EIO, what, named)
            url = target
        raise OSError(errno.ELOOP, "too many redirects", named)


def _is_same_host(url: str, target: str) -> bool:
    """Return whether a redirect stays on its host and port; https in place of http is allowed."""
    before, after = urlsplit(url), urlsplit(target)
    if before.hostname != after.hostname:
        return False
    ports = before.port or _PORTS[before.scheme], after.port or _PORTS.get(after.scheme)
    if (before.scheme, after.scheme) == ("http", "https"):
        return ports == (80, 443)
    return before.scheme == after.scheme and ports[0] == ports[1]


def _location(url: str, named: str) -> str | None:
    """Return what a web server redirects a URL to, or None; ``named`` is for messages."""
    from urllib import request  # 30 ms that buckets don't need

    opener = request.OpenerDirector()  # without the handler that follows redirects
    for handler in (request.ProxyHandler(), request.HTTPHandler(), request.HTTPSHandler()):
        opener.add_handler(handler)
    headers = {"User-Agent": "tfrtool"}
    asked = request.Request(url, headers=headers, method="HEAD")
    status, location = _answer(opener, asked, named)
    if status >= 400 and status not in (404, 410):  # many sign, or know, only GET
        headers["Range"] = "bytes=0-0"
        asked = request.Request(url, headers=headers, method="GET")
        status, location = _answer(opener, asked, named)
    return location if status in _REDIRECTS else None


def _answer(opener: Any, asked: Any, named: str) -> tuple[int, str | None]:
    """Return a status and where it leads; a 5xx or no answer is met as obstore meets it."""
    import ssl
    from http.client import HTTPException

    end, pause = time.monotonic() + _patience().total_seconds(), 0.1
    while True:
        try:
            with opener.open(asked, timeout=_ANSWER_SECONDS) as answer:
                if answer.status < 500 or asked.get_method() == "HEAD":
                    return answer.status, answer.headers.get("Location")
                text = f"status code: {answer.status} {answer.reason}"
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                what = "the server's certificate can't be verified"
                hint = "set SSL_CERT_FILE to a file of trusted certificates"
                raise OSError(errno.EPROTO, f"{what}; {hint}", named) from None
            text = "timed out" if isinstance(reason, TimeoutError) else ""
        if time.monotonic() + pause > end:
            raise ConnectionError(text)
        time.sleep(pause)
        pause = min(2 * pause, 5)


def _patience() -> timedelta:
    text = os.environ.get(_PATIENCE) or str(_SECONDS)
    try:
        return timedelta(seconds=float(text) if 0 <= float(text) <= 86_400 else float("nan"))
    except ValueError:
        what = f"invalid {_PATIENCE} {text!r}"
        raise UsageError(what, expected="0 to 86400 seconds") from None


def _profile() -> dict[str, Any]:
    """Return the credentials of a profile in ~/.aws, which boto3 reads and obstore doesn't."""
    from boto3 import Session
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = Session()
    if not session.available_profiles or session.get_credentials() is None:
        return {}
    provider = Boto3CredentialProvider(session, ttl=timedelta(minutes=5))
    if any(map(os.environ.get, _REGIONS)):  # which go before the profile
        provider.config.pop("region", None)
    return {"credential_provider": provider}
