"""The local viewer: pages and an API over what is found, served to one browser on this machine."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from tfrtool.errors import TfrtoolError, UsageError, os_reason, printable, reason_of
from tfrtool.view.guard import ACCEPT, HEADERS, Guard
from tfrtool.view.live import Live
from tfrtool.view.pieces import PIECES, environment

_FILES = {"view.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}

MAX_ASKED = 200
"""Rows that one request may ask for."""

_UNPROVEN, _TOKEN_SECONDS = 128, 10.0
"""Connections that have not shown the token yet, and how long each may take: nobody else can use
up what the owner needs."""

_CONNECTIONS = 64
"""Connections that have."""

_AT_ONCE = 2
"""Pictures that are decoded at once, and records that are told: each may take a GB."""


def serve(live: Live, *, host: str, port: int, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve the pages until the process is told to end, as by Ctrl-C.

    Args:
        live: what is shown.
        host: the address to listen at.
        port: the port; 0 takes a free one.
        token: what a browser must know.
        on_ready: called with the address to open.

    Raises:
        UsageError: nobody can listen there.
    """
    import uvicorn

    host = host or "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(128)  # who asks before the server runs waits
        except (OSError, ValueError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else reason_of(error)
            raise UsageError(f"can't listen on {host}:{port}: {reason}") from error
        port = listener.getsockname()[1]
        own = socket.gethostname() if host in ("0.0.0.0", "::") else host
        hosts = {host, own, "localhost", "127.0.0.1", "::1"}
        app = Guard(application(live), hosts=hosts, token=token)
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            limit_concurrency=_UNPROVEN + _CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            ws="none",
            server_header=False,
            headers=list(HEADERS.items()),
            proxy_headers=False,
            http=_guarded_protocol(),
        )
        shown = f"[{own}]" if ":" in own else own
        on_ready(f"http://{shown}:{port}/?token={token}")
        live.start()  # not before: the first page has both cores until then

        class Server(uvicorn.Server):
            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                live.interrupt()  # answers are waited for
                super().handle_exit(sig, frame)

        Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _guarded_protocol() -> Any:
    """Return uvicorn's protocol, which closes connections that don't show the token in time.

    If there are too many of them, the oldest is closed. It is h11, for others take what is not
    HTTP.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    unproven: dict[Any, asyncio.TimerHandle] = {}

    class GuardedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, ACCEPT: self.accept}
            if len(unproven) >= _UNPROVEN:
                oldest = next(iter(unproven))
                oldest.accept()
                oldest.transport.abort()
            unproven[self] = self.loop.call_later(_TOKEN_SECONDS, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self.accept()
            super().connection_lost(exc)

        def accept(self) -> None:
            if (timer := unproven.pop(self, None)) is not None:
                timer.cancel()

    return GuardedProtocol


def application(live: Live) -> Any:
    """Return the pages and the API as an ASGI application; whoever asks must have been let in."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    def answer(data: Any, status: int = 200) -> Any:
        text = json.dumps(data, allow_nan=False)
        return Response(text, status, media_type="application/json")

    def asked(get: Callable[[Request], Any], turns: Any = None) -> Callable[[Request], Any]:
        """Turn what goes wrong into an answer that the page shows; what is costly waits."""

        def endpoint(request: Request) -> Any:
            try:
                with turns or nullcontext():
                    found = get(request)
                return found if isinstance(found, Response) else answer(found)
            except IndexError as error:
                return answer({"error": printable(str(error))}, 404)
            except (TfrtoolError, ValueError, OverflowError, RecursionError) as error:
                return answer({"error": printable(str(error))}, 400)
            except MemoryError:
                return answer({"error": "not enough memory for this request"}, 400)

        return endpoint

    def page(_: Request) -> Any:
        text = (
            environment()
            .get_template("view.html")
            .render(heading=live.found.title, titles=PIECES, f=live.found)
        )
        return Response(text, media_type="text/html")

    def static(request: Request) -> Any:
        name = request.path_params["name"]
        if name not in _FILES:
            raise IndexError("no such file")
        data = Path(__file__).with_name("static").joinpath(name).read_bytes()
        return Response(data, media_type=_FILES[name])

    def rows(request: Request) -> Any:
        given = request.query_params
        count = min(int(given.get("count", 100)), MAX_ASKED)
        return live.rows(_question(given), int(given.get("start", 0)), count)

    def picture(request: Request) -> Any:
        row, full = int(request.path_params["row"]), request.url.path.startswith("/image/")
        data = live.picture(row, int(request.query_params.get("image", 0)), full=full)
        if data is None:
            raise IndexError("no image")
        kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
        return Response(data, media_type=kind)

    def mask(request: Request) -> Any:
        data = live.mask(int(request.path_params["row"]), int(request.path_params["number"]))
        if data is None:
            raise IndexError("no mask")
        return Response(data, media_type="image/png")

    def piece(request: Request) -> Any:
        name = request.path_params["name"]
        if name not in PIECES:
            raise IndexError("no such section")
        text = str(live.piece(name)).encode("utf-8", "backslashreplace")
        return Response(text, media_type="text/html")

    def printed(request: Request) -> Any:
        return live.printed(request.path_params["command"])

    async def marks(request: Request) -> Any:
        body = await request.body()

        def listed(_: Request) -> Any:
            try:
                rows = [int(row) for row in json.loads(body)["rows"]]
            except (KeyError, TypeError) as error:
                raise ValueError('expected {"rows": [...]}') from error
            return Response(live.marked(rows), media_type="text/plain")

        return await run_in_threadpool(asked(listed), request)

    def record(request: Request) -> Any:
        start = int(request.query_params.get("hex", 0))
        return live.record(int(request.path_params["row"]), start)

    pictures, records = (threading.Semaphore(_AT_ONCE) for _ in range(2))
    return Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", asked(static)),
            Route("/api/state", asked(lambda _: live.state())),
            Route("/api/rows", asked(rows)),
            Route("/api/record/{row}", asked(record, records)),
            Route("/api/json/{command}", asked(printed)),
            Route("/api/marks", marks, methods=["POST"]),
            Route("/thumb/{row}", asked(picture, pictures)),
            Route("/image/{row}", asked(picture, pictures)),
            Route("/image/{row}/mask/{number}", asked(mask, pictures)),
            Route("/piece/{name}", asked(piece, threading.Lock())),
        ]
    )


def _question(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what a page asks for, as `Selector.select` takes it."""
    equal: dict[str, str | None] = {n: given[n] for n in ("split", "label") if given.get(n)}
    return {
        "where": given.get("where") or None,
        "text": given.get("text") or None,
        "equal": equal,
        "sort": given.get("sort") or None,
        "descending": given.get("descending") == "1",
    }
