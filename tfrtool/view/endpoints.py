"""How the server answers a request: a handler makes the content, and an error becomes a page."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tfrtool.errors import TfrtoolError, os_reason, printable
from tfrtool.view.live import Live
from tfrtool.view.page_address import PageAddress, number_of
from tfrtool.view.pieces import environment

_LOG = logging.getLogger(__name__)

_AT_ONCE = 2
"""Pages and pictures of a kind that are made at once; a picture may take 1 GB."""

Handler = Callable[[Live, Request], Response | str]
"""Makes a response, or the HTML of a page; `KeyError` and `IndexError` if there is none."""


def endpoint(live: Live, handle: Handler) -> Callable[[Request], Response]:
    """Return the endpoint of a handler; an error is a page that explains it."""
    turns = threading.Semaphore(_AT_ONCE)

    def respond(request: Request) -> Response:
        try:
            with turns:
                content = handle(live, request)
        except Exception as error:  # noqa: BLE001 - it is shown or logged, and other pages still work
            return _error_page(live, request, error)
        if isinstance(content, Response):
            return content
        return Response(content.encode("utf-8", "backslashreplace"), media_type="text/html")

    return respond


def _error_page(live: Live, request: Request, error: Exception) -> Response:
    """Return the page that explains an error."""
    what, hint, status = "not found", None, 404
    if isinstance(error, TfrtoolError):
        what, status = str(error), 400
    elif isinstance(error, OSError):  # such as a shard that was deleted meanwhile
        file_name = f"{error.filename}: " if error.filename else ""
        what, status = f"{file_name}can't be read: {os_reason(error)}", 400
        hint = "start the viewer again if the dataset was replaced"
    elif not isinstance(error, IndexError | KeyError):
        path = printable(request.url.path)
        _LOG.error("unexpected error for %s", path, exc_info=error)
        what, status = "unexpected error; the terminal of tfrtool view shows it", 500
    page = environment().get_template("problem.html")
    html = page.render(heading=live.found.title, what=printable(what), hint=hint)
    return Response(html, status, media_type="text/html")


def address_of(live: Live, query: Mapping[str, str]) -> PageAddress:
    """Return what the query of an address asks for."""
    return PageAddress(query, live.found)


def numbers_in(parameters: Mapping[str, Any], names: str) -> list[int]:
    """Return numbers in an address by their names; `UsageError` if one isn't a number."""
    return [number_of(parameters[name]) for name in names.split()]
