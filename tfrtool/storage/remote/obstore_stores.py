"""Object stores and web servers as obstore has them."""

import os
import re
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from obstore import store as stores

from tfrtool.errors import UsageError

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

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

_URL = (
    r"https?://(?:[\w.~%!$&'()*+,;=:-]+@)?(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?"
    r"(?:/[\w.~%!$&'()*+,;=:@/-]*)?"
)

_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def library_for(scheme: str, authority: str, query: str) -> Any:
    """Return a bucket, a container or a host, which finds its credentials by itself."""
    url = f"{scheme}://{authority}" + (f"?{query}" if query else "")
    options: dict[str, Any] = {"timeout": "60s", "connect_timeout": "10s"}
    endpoint = _endpoint(scheme) or url
    allowed = [os.environ.get(f"{name}_ALLOW_HTTP", "") for name in ("AWS", "GOOGLE", "AZURE")]
    if endpoint.startswith("http://") or "true" in map(str.lower, allowed):
        options["allow_http"] = True
    retries = {**_RETRIES, "retry_timeout": _patience()}
    settings: Any = {"client_options": options, "retry_config": retries}
    if scheme == "s3" and not any(map(os.environ.get, _CREDENTIALS)) and find_spec("boto3"):
        settings |= _profile()
    if scheme == "az":
        return stores.AzureStore(authority, **settings)
    return stores.from_url(url, **settings)


def _endpoint(scheme: str) -> str | None:
    """Return the address of the store in the environment; `UsageError` if it is not a URL."""
    endpoints = []
    for variable in _ENDPOINTS.get(scheme, ()):
        value = os.environ.get(variable)
        if value is None:
            continue
        if not _is_url(value):  # not printed: it may contain a password
            raise UsageError(
                f"{variable} is not a URL", expected="http://HOST:PORT or https://HOST"
            )
        endpoints.append(value)
    return endpoints[0] if endpoints else None


def _is_url(text: str) -> bool:
    """Return whether a text is the URL of a server, by RFC 3986; obstore panics at others."""
    if re.fullmatch(_URL, text, re.ASCII) is None:
        return False
    try:
        port = urlsplit(text).port
    except ValueError:  # the address in brackets is none, or the port is too large
        return False
    return port != 0


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
