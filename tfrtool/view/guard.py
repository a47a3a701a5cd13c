"""Who may ask: the browser that was given the token, from the page itself, and nobody else.

A page of another site can make a browser ask 127.0.0.1, and by DNS rebinding even read what comes
back. So the Host must be ours, what tells where a request comes from must say "here", and the
token, which only the opened address and then a cookie have, must be right.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from ipaddress import ip_address
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
"""What every answer says; the server adds it, for its own answers need it, too."""

MAX_BODY = 4 * 1024 * 1024
"""Bytes of what is sent: a list of marked records."""

ACCEPT = "accept"
"""The key in a request's state of what is called when its connection has shown the token."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_ONCE = ("host", "origin", "sec-fetch-site", "content-length")


class Guard:
    """Lets requests through to an application that come from its own page."""

    def __init__(self, app: App, *, hosts: Collection[str], token: str) -> None:
        """Guard an application that is reached under these names.

        Its port may be another one to the browser, as behind ``ssh -L``. Where "0.0.0.0" or "::"
        is among the names, any address in numbers is one: nobody can make a name of theirs lead
        here by that.
        """
        self._app, self._hosts, self._token = app, frozenset(map(str.lower, hosts)), token
        self.cookie = f"tfrtool-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":  # the start and the end; there are no web sockets
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and self._is_token(given):
            # Out of the address, where histories and copied links would keep it.
            _accept(scope)
            cookie = f"{self.cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            more = [(b"location", b"/"), (b"set-cookie", cookie.encode())]
            await _answer(send, 303, "", more)
        elif not any(map(self._is_token, self._cookies_of(headers.get("cookie", [])))):
            await _answer(send, 403, "open the URL that tfrtool view printed")
        else:
            _accept(scope)
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        if any(len(headers.get(name, ())) > 1 for name in _ONCE):
            return 400, "duplicate header"
        host, origin, site, length = (headers.get(name, [""])[0] for name in _ONCE)
        if not self._is_ours(host):
            return 403, "unknown host"
        if "origin" in headers and origin.lower() != f"http://{host}".lower():
            return 403, "request from another origin"
        # A link or a typed address is "none", or the address that was opened from elsewhere.
        if scope["path"] != "/" and site not in ("", "same-origin", "none"):
            return 403, "request from another site"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "method not allowed"
        if "transfer-encoding" in headers or not re.fullmatch("[0-9]{0,9}", length):
            return 411, "Content-Length required"
        return (413, "request body too large") if int(length or 0) > MAX_BODY else None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = "" if found is None else found[1].lower().strip("[]")
        return name in self._hosts or (
            not self._hosts.isdisjoint(("0.0.0.0", "::")) and _is_address(name)
        )

    def _cookies_of(self, headers: Collection[str]) -> list[str]:
        # Others of this machine's pages may have set cookies that are odd, or have our name.
        pairs = (part.strip().partition("=") for one in headers for part in one.split(";"))
        return [value for name, _, value in pairs if name == self.cookie]

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _accept(scope: Scope) -> None:
    scope.get("state", {}).get(ACCEPT, lambda: None)()


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


async def _answer(
    send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    text += "\n"
    kind = [(b"content-type", b"text/plain; charset=utf-8")]
    headers = [*kind, (b"content-length", str(len(text)).encode()), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
