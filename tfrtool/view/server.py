"""The local viewer: pages and an API over what is found, served to one browser on this machine."""

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfrtool.errors import TfrtoolError, UsageError
from tfrtool.view.guard import Guard
from tfrtool.view.live import Live
from tfrtool.view.pieces import PIECES, environment

_FILES = {"view.js": "text/javascript", "style.css": "text/css"}

MAX_ASKED = 200
"""Rows that one request may ask for."""


def serve(live: Live, *, host: str, port: int, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve the pages until the process is told to end, as by Ctrl-C.

    Args:
        live: what is shown.
        host: the address to listen at.
        port: the port; 0 takes a free one.
        token: what a browser must know.
        on_ready: called with the address to open.

    Raises:
        UsageError: nobody can listen there, or Starlette or uvicorn are missing.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise _missing(error) from error
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise UsageError(f"can't listen at {host}:{port}: {error.strerror}") from error
        listener.listen(128)  # who asks before the server runs waits
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        hosts = {f"{name}:{port}" for name in (shown, "localhost", "127.0.0.1")}
        app = Guard(application(live), hosts=hosts, token=token)
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            limit_concurrency=64,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            ws="none",
            server_header=False,
        )
        on_ready(f"http://{shown}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _missing(error: ImportError) -> UsageError:
    hint = 'pip install "tfrtool[view]"'
    return UsageError(f"the viewer needs {error.name}, which is not installed", hint=hint)


def application(live: Live) -> Any:
    """Return the pages and the API as an ASGI application; whoever asks must have been let in."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise _missing(error) from error

    def answer(data: Any, status: int = 200) -> Any:
        text = json.dumps(data, allow_nan=False)
        return Response(text, status, media_type="application/json")

    def asked(get: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Turn what goes wrong into an answer that the page shows."""

        def endpoint(request: Request) -> Any:
            try:
                found = get(request)
            except (TfrtoolError, ValueError) as error:
                return answer({"error": str(error)}, 400)
            except IndexError as error:
                return answer({"error": str(error)}, 404)
            return found if isinstance(found, Response) else answer(found)

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
        row, box = int(request.path_params["row"]), request.path_params["box"]
        data = live.picture(row, int(request.query_params.get("image", 0)), full=box == "image")
        if data is None:
            raise IndexError("no picture")
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
            raise IndexError("no such piece")
        return Response(str(live.piece(name)), media_type="text/html")

    def printed(request: Request) -> Any:
        return live.printed(request.path_params["command"])

    async def marks(request: Request) -> Any:
        body = await request.body()
        try:
            numbers = json.loads(body)["rows"]
            text = live.marked([int(row) for row in numbers])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            return answer({"error": f"no list of rows: {error}"}, 400)
        return Response(text, media_type="text/plain; charset=utf-8")

    def record(request: Request) -> Any:
        start = int(request.query_params.get("hex", 0))
        return live.record(int(request.path_params["row"]), start)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/static/{name}", asked(static)),
            Route("/api/state", asked(lambda _: live.state())),
            Route("/api/rows", asked(rows)),
            Route("/api/record/{row:int}", asked(record)),
            Route("/api/json/{command}", asked(printed)),
            Route("/api/marks", marks, methods=["POST"]),
            Route("/{box:str}/{row:int}/mask/{number:int}", asked(mask)),
            Route("/{box:str}/{row:int}", asked(picture)),
            Route("/piece/{name}", asked(piece)),
        ]
    )


def _question(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what a page asks for, as `Selector.select` takes it."""
    equal = {name: given[name] for name in ("split", "label") if given.get(name)}
    return {
        "where": given.get("where") or None,
        "text": given.get("text") or None,
        "equal": equal,
        "sort": given.get("sort") or None,
        "descending": given.get("descending") == "1",
    }
