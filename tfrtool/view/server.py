"""The local server of the viewer: its addresses, and who may connect."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tfrtool.errors import UsageError, os_reason, reason_of
from tfrtool.view.guard import ACCEPT, HEADERS, Guard
from tfrtool.view.live import Live
from tfrtool.view.pieces import environment

_TOKEN_SECONDS, _CONNECTIONS = 10.0, 192
"""Time for a connection to show the token, and how many there may be."""


def application(live: Live) -> Any:
    """Return the pages as an ASGI application, without its guard."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    from tfrtool.view.endpoints import endpoint
    from tfrtool.view.media_routes import MEDIA
    from tfrtool.view.page_routes import PAGES
    from tfrtool.view.tag_routes import TAG_LISTS, tag_endpoint

    handlers = {**PAGES, **MEDIA, **TAG_LISTS}
    routes = [Route(path, endpoint(live, handle)) for path, handle in handlers.items()]
    return Starlette(routes=[*routes, Route("/marks", tag_endpoint(live), methods=["POST"])])


def _locked_page(address: str) -> str:
    """Return the page that explains which address to open instead."""
    return str(environment().get_template("locked.html").render(href=address))


def serve(
    live: Live,
    *,
    host: str,
    port: int,
    token: str,
    cookie_seconds: int | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the pages until the process is interrupted, as by Ctrl-C.

    Args:
        live: what is shown.
        host: the address to listen at.
        port: the port; 0 takes a free one.
        token: what a browser must know.
        cookie_seconds: how long it remembers the token; None for until it is closed.
        on_ready: called with the address to open.

    Raises:
        UsageError: the address can't be listened on.
    """
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            live.interrupt()  # it waits for answers
            super().handle_exit(sig, frame)

    host = host or "0.0.0.0"
    with _listener(host, port) as listener:
        host_name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        guard = Guard(
            application(live),
            hosts={host, host_name, "localhost", "127.0.0.1", "::1"},
            token=token,
            cookie_seconds=cookie_seconds,
            locked_page=_locked_page,
            public=("/static/style.css",),
        )
        shown = f"[{host_name}]" if ":" in host_name else host_name
        on_ready(f"http://{shown}:{listener.getsockname()[1]}/?token={token}")
        live.start()  # not before: the first page has both cores until then
        Server(_configuration(guard)).run(sockets=[listener])


def _configuration(guard: Guard) -> Any:
    """Return the settings of the server of a guarded application."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class GuardedProtocol(H11Protocol):
        """Closes connections that don't show the token in time. h11 accepts nothing but HTTP."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            timer = self.loop.call_later(_TOKEN_SECONDS, transport.abort)
            self.app_state = {**self.app_state, ACCEPT: timer.cancel}

    return uvicorn.Config(
        guard,
        log_level="critical",
        access_log=False,
        lifespan="off",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        ws="none",
        server_header=False,
        headers=list(HEADERS.items()),
        proxy_headers=False,
        http=GuardedProtocol,
    )


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that listens; `UsageError` if the address can't be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(128)  # requests before the server runs wait
        except (OSError, ValueError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else reason_of(error)
            raise UsageError(f"can't listen on {host}:{port}: {reason}") from error
        yield listener
