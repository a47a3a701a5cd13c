"""Lets in only the browser that was given the token, from the viewer's own pages.

A page of another site can make a browser send requests to 127.0.0.1, and with DNS rebinding even
read the answers. So the Host must be ours, the origin must be the page itself, and the token must
be right, which only the opened address and then a cookie have.
"""

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer. The server adds them, also to its own."""

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a request: a list of marked records."""

ACCEPT = "accept"
"""The key in a request's state of what to call when its connection has shown the token."""

LOCAL_ADDRESS = re.compile(r"/(?![/\\])[!-~]*")
"""An address that can only lead to the viewer itself."""

_LOCKED, _OTHER_SITE = "open the URL that tfrtool view printed", "request from another site"

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_ONCE = ("host", "origin", "sec-fetch-site", "content-length")


class Guard:
    """Passes requests of the application's own pages to it."""

    def __init__(
        self,
        app: App,
        *,
        hosts: Collection[str],
        token: str,
        cookie_seconds: int | None = None,
        locked_page: Callable[[str], str] = "open the URL that tfrtool view printed: {}".format,
        public: Collection[str] = (),
    ) -> None:
        """Guard an application.

        Args:
            app: what is guarded.
            hosts: host names of this machine. Its port may be another one for the browser, as
                behind ``ssh -L``. If "0.0.0.0" or "::" is among the names, every numeric address is
                one: DNS rebinding needs a name.
            token: what a browser must know.
            cookie_seconds: how long a browser remembers it; None for until it is closed.
            locked_page: returns the HTML that explains to people what is missing, from an address
                to try again.
            public: paths that need no token, such as the style sheet of that page.
        """
        self._app, self._hosts, self._token = app, frozenset(map(str.lower, hosts)), token
        self._locked_page, self._public = locked_page, frozenset(public)
        # Cookies don't know ports: other viewers have other names. This one has it after a restart.
        self.cookie = f"tfrtool-{hashlib.sha256(token.encode()).hexdigest()[:8]}"
        age = "" if cookie_seconds is None else f"; Max-Age={cookie_seconds}"
        self._set_cookie = f"{self.cookie}={token}; Path=/; HttpOnly; SameSite=Strict{age}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":  # start and end; web sockets are refused
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        refused = self._refusal(scope, headers)
        if refused is not None:
            await self._refuse(scope, headers, send, *refused)
            return
        if scope["path"] in self._public:
            await self._app(scope, receive, send)
            return
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        pairs = (
            part.partition("=") for one in headers.get("cookie", ()) for part in one.split(";")
        )
        cookies = [value for name, _, value in pairs if name.strip() == self.cookie]
        if scope["path"] == "/" and self._is_token(token):
            # Out of the address, where histories and copied links would keep it.
            _accept(scope)
            cookie = (b"set-cookie", self._set_cookie.encode())
            await _answer(send, 303, "", (b"location", b"/"), cookie)
        elif not any(map(self._is_token, cookies)):
            await self._refuse(scope, headers, send, 403, _LOCKED)
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
            return 403, _OTHER_SITE
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "method not allowed"
        if "transfer-encoding" in headers or not re.fullmatch("[0-9]{0,9}", length):
            return 411, "Content-Length required"
        return (413, "request body too large") if int(length or 0) > MAX_BODY else None

    async def _refuse(
        self, scope: Scope, headers: dict[str, list[str]], send: Send, status: int, text: str
    ) -> None:
        """Answer in a line, or with the page for people if they followed a link to a page."""
        is_page = scope["method"] == "GET" and "text/html" in headers.get("accept", [""])[0]
        if not is_page or text not in (_LOCKED, _OTHER_SITE):
            await _answer(send, status, text)
            return
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        address = quote(scope["path"]) + (f"?{rest}" if rest else "")
        safe = address if LOCAL_ADDRESS.fullmatch(address) else "/"
        await _answer(send, status, self._locked_page(safe), kind=b"text/html")

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = "" if found is None else found[1].lower().strip("[]")
        if name in self._hosts:
            return True
        try:
            return not self._hosts.isdisjoint(("0.0.0.0", "::")) and bool(ip_address(name))
        except ValueError:
            return False

    def _is_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self._token.encode())


def _accept(scope: Scope) -> None:
    scope.get("state", {}).get(ACCEPT, lambda: None)()


async def _answer(
    send: Send, status: int, text: str, *more: tuple[bytes, bytes], kind: bytes = b"text/plain"
) -> None:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", kind + b"; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
