"""Object stores and web servers as obstore has them."""

import os
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from typing import Any

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
    return stores.AzureStore(place, **given) if scheme == "az" else stores.from_url(url, **given)


def _patience() -> timedelta:
    text = os.environ.get(_PATIENCE) or str(_SECONDS)
    try:
        return timedelta(seconds=float(text) if 0 <= float(text) <= 86_400 else float("nan"))
    except ValueError:
        expected = "seconds, from 0 to 86400"
        raise UsageError(f"invalid {_PATIENCE}", expected=expected, found=repr(text)) from None


def _profile() -> dict[str, Any]:
    """Return what a profile of ~/.aws says, which boto3 reads and obstore doesn't; if there is one.

    `obstore.auth.boto3` would do, but for Python 3.10, and for AWS_REGION, which goes before.
    """
    import boto3

    session = boto3.Session()
    found = session.get_credentials() if session.available_profiles else None
    if found is None:
        return {}

    def provide() -> dict[str, Any]:
        now = found.get_frozen_credentials()  # others, in time before these expire
        until = datetime.now(timezone.utc) + timedelta(minutes=5)
        keys = {"access_key_id": now.access_key, "secret_access_key": now.secret_key}
        return {**keys, "token": now.token, "expires_at": until}

    region = None if any(map(os.environ.get, _REGIONS)) else session.region_name
    return {"credential_provider": provide} | ({"region": region} if region else {})
