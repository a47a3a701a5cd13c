"""Who may ask: the browser that was given the token, from the page itself, and nobody else.

A page of another site can make a browser ask 127.0.0.1, and by DNS rebinding even read what comes
back. So the Host must be ours, what tells where a request comes from must say "here", and the
token, which only the opened address and then a cookie have, must be right.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer says."""

MAX_BODY = 4 * 1024 * 1024
"""Bytes of what is sent: a list of marked records."""


class Guard:
    """Lets requests through to an application that come from its own page."""

    def __init__(self, app: App, *, hosts: Collection[str], token: str) -> None:
        """Guard an application that is reached under these names, with their ports."""
        self._app, self._hosts, self._token = app, frozenset(hosts), token
        self.cookie = f"tfrtool-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":  # the start and the end; there are no web sockets
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [(n, v) for n, v in message["headers"] if n.lower() != b"cache-control"]
                own = [(n.lower().encode(), v.encode()) for n, v in HEADERS.items()]
                message["headers"] = [*kept, *own]
            await send(message)

        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(guarded, 403, f"{refused}\n")
            return
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_token(given):
            # Out of the address, where histories and copied links would keep it.
            cookie = f"{self.cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            more = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
            await _answer(guarded, 303, "", more)
        elif not self._is_token(self._cookie_of(headers.get("cookie", ""))):
            await _answer(guarded, 403, "open the address that tfrtool view printed\n")
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> str | None:
        if headers.get("host", "") not in self._hosts:
            return "unknown host"
        origin = headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return "another origin"
        # A link or a typed address is "none", or the address that was opened from elsewhere.
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in (
            "same-origin",
            "none",
        ):
            return "another site"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return "no such method"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY or "transfer-encoding" in headers:
            return "too much is sent"
        return None

    def _cookie_of(self, header: str) -> str:
        try:
            held = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return ""
        return "" if held is None else held.value

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


async def _answer(
    send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    kind = [(b"content-type", b"text/plain; charset=utf-8")]
    headers = [*kind, (b"content-length", str(len(text)).encode()), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
