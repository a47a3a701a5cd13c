"""Requests as a server passes them on, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote

Header = tuple[str, str]


class Answer(NamedTuple):
    """What was answered; None as status where nothing was."""

    status: int | None
    headers: list[Header]
    body: bytes


def ask(
    app: Any,
    path: str,
    query: str = "",
    *,
    method: str = "GET",
    headers: Iterable[Header] = (),
    body: bytes = b"",
    kind: str = "http",
) -> Answer:
    """Ask an ASGI application; what it raises comes out."""
    sent: list[MutableMapping[str, Any]] = []
    is_read = False

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        while is_read:  # a browser that waits for the answer
            await asyncio.sleep(60)
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "http_version": "1.1",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1"),
        "headers": [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers],
        "scheme": "http",
        "root_path": "",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    asyncio.run(app(scope, receive, send))
    if not sent:
        return Answer(None, [], b"")
    named = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in sent[0]["headers"]]
    return Answer(sent[0]["status"], named, b"".join(one.get("body", b"") for one in sent[1:]))
