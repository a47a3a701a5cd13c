"""The local server of the viewer: addresses, and how many requests run at once."""

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from tfrtool.errors import TfrtoolError, UsageError, os_reason, printable, reason_of
from tfrtool.images.pixels import encoded
from tfrtool.inspection.extract.sounds import sound_file
from tfrtool.inspection.pictures.objects import mask_of, picture_of, thumbnail
from tfrtool.inspection.table.downloads import DOWNLOADS
from tfrtool.inspection.table.record_query import RecordKey, select_records
from tfrtool.view.damaged_bytes import damage_page
from tfrtool.view.guard import ACCEPT, HEADERS, LOCAL_ADDRESS, Guard
from tfrtool.view.live import Live
from tfrtool.view.marks import MARKED, parse_tag
from tfrtool.view.overview_page import overview_page
from tfrtool.view.page_address import PageAddress, number_of, parse_tag_key
from tfrtool.view.page_frame import progress
from tfrtool.view.pieces import environment
from tfrtool.view.record_media import LARGE, LARGEST
from tfrtool.view.record_page import record_page
from tfrtool.view.records_page import records_page
from tfrtool.view.steps import cameras_of, values_of

_LOG = logging.getLogger(__name__)

_STATIC = {"view.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
_TOKEN_SECONDS, _CONNECTIONS = 10.0, 192
"""Time for a connection to show the token, and how many there may be."""

_AT_ONCE = 2
"""Pages and pictures that are made at once; a picture may take 1 GB."""


def application(live: Live) -> Any:
    """Return the pages as an ASGI application, without its guard."""
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import (
        FileResponse,
        JSONResponse,
        PlainTextResponse,
        RedirectResponse,
        Response,
    )
    from starlette.routing import Route

    def endpoint(make: Callable[[Request], Any]) -> Callable[[Request], Response]:
        """Return an endpoint; an error is a page that explains it."""
        turns = threading.Semaphore(_AT_ONCE)

        def respond(request: Request) -> Response:
            what, hint, status = "not found", None, 404
            try:
                with turns:
                    content = make(request)
                if isinstance(content, Response):
                    return content
                return Response(content.encode("utf-8", "backslashreplace"), media_type="text/html")
            except TfrtoolError as error:
                what, status = str(error), 400
            except (IndexError, KeyError):
                pass
            except OSError as error:  # such as a shard that was deleted meanwhile
                file_name = f"{error.filename}: " if error.filename else ""
                what, status = f"{file_name}can't be read: {os_reason(error)}", 400
                hint = "start the viewer again if the dataset was replaced"
            except Exception:  # noqa: BLE001 - it is logged, and other pages still work
                _LOG.exception("unexpected error for %s", printable(request.url.path))
                what, status = "unexpected error; the terminal of tfrtool view shows it", 500
            page = environment().get_template("problem.html")
            html = page.render(heading=live.found.title, what=printable(what), hint=hint)
            return Response(html, status, media_type="text/html")

        return respond

    def asked(query: Mapping[str, str]) -> PageAddress:
        return PageAddress(query, has_images=live.found.has_images)

    def record(request: Request) -> Any:
        shard, number = (number_of(request.path_params[name]) for name in ("shard", "record"))
        query = request.query_params
        start, step, of = (number_of(query.get(name, "0")) for name in ("hex", "step", "camera"))
        return record_page(live, asked(query), shard, number, start, step, of)

    def damage(request: Request) -> Any:
        shard, offset = _numbers(request.path_params, "shard offset")
        return damage_page(live, shard, offset)

    def picture(request: Request) -> Response:
        """Return an image or a mask, decoded and encoded again."""
        params, query = request.path_params, request.query_params
        shard, offset = number_of(params["shard"]), number_of(params["offset"])
        box, number = number_of(query.get("box", "160")), number_of(query.get("image", "0"))
        roles = live.found.roles(shard)
        item = live.reader.read(shard, offset)
        data = None
        if item is not None and "mask" in params:
            mask = mask_of(item.payload, roles, number_of(params["mask"]), LARGE)
            data = encoded(mask, exact=True)
        elif item is not None and box >= LARGE:
            data = encoded(picture_of(item.payload, roles, min(box, LARGEST), number))
        elif item is not None:
            data = encoded(thumbnail(item.payload, roles, max(box, 1)))
        return _image(data)

    def camera(request: Request) -> Response:
        """Return an image of a step, decoded and encoded again."""
        shard, offset, number, step = _numbers(request.path_params, "shard offset camera step")
        cameras, item = cameras_of(live), live.reader.read(shard, offset)
        if cameras is None or item is None:
            raise IndexError("no picture")
        box = min(number_of(request.query_params.get("box", str(LARGE))), LARGE)
        return _image(encoded(cameras.picture(item.payload, number, step, max(box, 1))))

    def step(request: Request) -> Response:
        """Return the values of a step."""
        shard, offset, number = _numbers(request.path_params, "shard offset step")
        item = live.reader.read(shard, offset)
        return JSONResponse([] if item is None else values_of(live, item.payload, number))

    def sound(request: Request) -> Response:
        """Return a sound of a record, or the part of it that is asked for."""
        shard, offset, number = _numbers(request.path_params, "shard offset number")
        item = live.reader.read(shard, offset)
        try:
            data, kind = sound_file(b"" if item is None else item.payload, live.found.root, number)
        except ValueError as error:
            raise UsageError(str(error)) from error
        part = re.fullmatch("bytes=([0-9]{1,12})-([0-9]{0,12})", request.headers.get("range", ""))
        if part is None or int(part[1]) >= len(data):
            return Response(data, media_type=kind, headers={"Accept-Ranges": "bytes"})
        start, end = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
        headers = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
        return Response(data[start : end + 1], 206, media_type=kind, headers=headers)

    def download(request: Request) -> Response:
        """Return the records of a question as a file."""
        form = request.path_params["form"]
        kind, address = DOWNLOADS[form], asked(request.query_params)
        path = live.download(form, address.question)
        name = f"{live.found.title}.{form}"
        clean_up = BackgroundTask(path.unlink, missing_ok=True)
        return FileResponse(path, media_type=kind, filename=name, background=clean_up)

    def _image(data: bytes | None) -> Response:
        if data is None:
            raise IndexError("no picture")
        kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
        return Response(data, media_type=kind)

    def static(request: Request) -> Response:
        name = request.path_params["name"]
        kind = _STATIC[name]
        data = Path(__file__).with_name("static").joinpath(name).read_bytes()
        return Response(data, media_type=kind)

    def state(_: Request) -> Response:
        return JSONResponse({"text": progress(live), "done": live.done, "version": live.version})

    def marks_file(request: Request) -> Response:
        tag = parse_tag(request.query_params.get("tag", MARKED))
        name = quote(f"{tag}.txt")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return PlainTextResponse(live.marks.text(tag), headers=headers)

    def changed(body: str) -> Response:
        form = parse_qs(body, keep_blank_values=True)
        tagged, untagged = (_keys_by_tag(form.get(name, ())) for name in ("mark", "seen"))
        back, bulk = (form.get(name, [""])[0] for name in ("back", "bulk"))
        if bulk == "use":  # from now on, checkboxes stand for this tag
            back = _with_tag(back, parse_tag(form.get("new", [MARKED])[0]))
        elif bulk:
            address = asked(dict(parse_qsl(form.get("query", [""])[0], keep_blank_values=True)))
            found = live.ask(select_records, address.question, copies=bulk == "copies")
            by_tag = {address.tag: {(shard, record) for shard, record in found}}
            tagged, untagged = ({}, by_tag) if bulk == "unmark" else (by_tag, {})
        live.marks.change(tagged, untagged)
        if "script" in form:
            return JSONResponse({tag: len(live.marks.records(tag)) for tag in untagged})
        return RedirectResponse(back if LOCAL_ADDRESS.fullmatch(back) else "/", 303)

    async def change_marks(request: Request) -> Response:
        body = (await request.body()).decode("utf-8", "replace")
        return await run_in_threadpool(endpoint(lambda _: changed(body)), request)

    return Starlette(
        routes=[
            Route("/", endpoint(lambda request: records_page(live, asked(request.query_params)))),
            Route("/overview", endpoint(lambda _: overview_page(live))),
            Route("/record/{shard}/{record}", endpoint(record)),
            Route("/damage/{shard}/{offset}", endpoint(damage)),
            Route("/image/{shard}/{offset}", endpoint(picture)),
            Route("/camera/{shard}/{offset}/{camera}/{step}", endpoint(camera)),
            Route("/step/{shard}/{offset}/{step}", endpoint(step)),
            Route("/sound/{shard}/{offset}/{number}", endpoint(sound)),
            Route("/mask/{shard}/{offset}/{mask}", endpoint(picture)),
            Route("/marks", change_marks, methods=["POST"]),
            Route("/marked.txt", endpoint(marks_file)),
            Route("/download.{form}", endpoint(download)),
            Route("/state", endpoint(state)),
            Route("/static/{name}", endpoint(static)),
        ]
    )


def _keys_by_tag(texts: Iterable[str]) -> dict[str, set[RecordKey]]:
    keys = dict[str, set[RecordKey]]()
    for tag, key in map(parse_tag_key, texts):
        keys.setdefault(tag, set()).add(key)
    return keys


def _with_tag(address: str, tag: str) -> str:
    """Return an address in which checkboxes stand for a tag."""
    path, _, query = address.partition("?")
    parameters = [one for one in parse_qsl(query, keep_blank_values=True) if one[0] != "tag"]
    return f"{path}?{urlencode([*parameters, ('tag', tag)])}"


def _locked_page(address: str) -> str:
    """Return the page that explains which address to open instead."""
    return str(environment().get_template("locked.html").render(href=address))


def _numbers(parameters: Mapping[str, str], names: str) -> list[int]:
    return [number_of(parameters[name]) for name in names.split()]


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
