"""Object stores and web servers as obstore has them."""

import os
from datetime import timedelta
from typing import Any

from obstore import store as stores

_RETRIES: Any = {
    "max_retries": 8,
    "backoff": {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=10),
        "base": 2,
    },
    "retry_timeout": timedelta(seconds=120),
}
"""Of requests that met a 5xx, or no server: some 25 seconds of waiting in all."""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def library_for(scheme: str, place: str, query: str) -> Any:
    """Return a bucket, a container or a host, which finds its credentials by itself."""
    url = f"{scheme}://{place}" + (f"?{query}" if query else "")
    options: dict[str, Any] = {"timeout": "60s", "connect_timeout": "10s"}
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS.get(scheme, ()))), url)
    allowed = [os.environ.get(f"{name}_ALLOW_HTTP", "") for name in ("AWS", "GOOGLE", "AZURE")]
    if endpoint.startswith("http://") or "true" in map(str.lower, allowed):
        options["allow_http"] = True
    given: Any = {"client_options": options, "retry_config": _RETRIES}
    return stores.AzureStore(place, **given) if scheme == "az" else stores.from_url(url, **given)
