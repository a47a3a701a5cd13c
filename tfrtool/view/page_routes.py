"""Addresses of pages, of downloads, and of the files that all pages use."""

from collections.abc import Mapping
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from tfrtool.errors import UsageError
from tfrtool.inspection.table.downloads import DOWNLOADS
from tfrtool.view.damaged_bytes import damage_page
from tfrtool.view.endpoints import Handler, address_of, numbers_in
from tfrtool.view.live import Live
from tfrtool.view.overview_page import overview_page
from tfrtool.view.page_address import number_of
from tfrtool.view.page_frame import progress
from tfrtool.view.record_page import record_page
from tfrtool.view.records_page import records_page

_STATIC = {"view.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}


def _records(live: Live, request: Request) -> str:
    return records_page(live, address_of(live, request.query_params))


def _overview(live: Live, _: Request) -> str:
    return overview_page(live)


def _record(live: Live, request: Request) -> str:
    try:
        shard, number = live.found.record_names.find(request.path_params["name"])
    except UsageError as error:
        raise KeyError("no such record") from error
    query = request.query_params
    start, step, camera = (number_of(query.get(name, "0")) for name in ("hex", "step", "camera"))
    return record_page(live, address_of(live, query), shard, number, start, step, camera)


def _damage(live: Live, request: Request) -> str:
    shard, offset = numbers_in(request.path_params, "shard offset")
    return damage_page(live, shard, offset)


def _download(live: Live, request: Request) -> Response:
    """Return the records of a question as a file."""
    form = request.path_params["form"]
    kind, address = DOWNLOADS[form], address_of(live, request.query_params)
    path = live.download(form, address.question)
    name = f"{live.found.title}.{form}"
    clean_up = BackgroundTask(path.unlink, missing_ok=True)
    return FileResponse(path, media_type=kind, filename=name, background=clean_up)


def _state(live: Live, _: Request) -> Response:
    return JSONResponse({"text": progress(live), "done": live.done, "version": live.version})


def _static(_: Live, request: Request) -> Response:
    name = request.path_params["name"]
    kind = _STATIC[name]
    data = Path(__file__).with_name("static").joinpath(name).read_bytes()
    return Response(data, media_type=kind)


PAGES: Mapping[str, Handler] = {
    "/": _records,
    "/overview": _overview,
    "/record/{name:path}": _record,
    "/damage/{shard}/{offset}": _damage,
    "/download.{form}": _download,
    "/state": _state,
    "/static/{name}": _static,
}
"""What is answered at an address, by the pattern of its path."""
