"""Addresses that change the tags of records, and return their lists."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from tfrtool.inspection.table.record_query import RecordKey, select_records
from tfrtool.view.endpoints import Handler, address_of, endpoint
from tfrtool.view.guard import LOCAL_ADDRESS
from tfrtool.view.live import Live
from tfrtool.view.marks import MARKED, parse_tag
from tfrtool.view.page_address import parse_tag_key


def tag_endpoint(live: Live) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of the forms with the tags of records."""

    async def change_tags(request: Request) -> Response:
        body = (await request.body()).decode("utf-8", "replace")
        return await run_in_threadpool(endpoint(live, lambda *_: _change(live, body)), request)

    return change_tags


def _change(live: Live, body: str) -> Response:
    """Tag and untag records as a form says, and lead back to its page."""
    form = parse_qs(body, keep_blank_values=True)
    tagged, untagged = (_keys_by_tag(form.get(name, ())) for name in ("mark", "seen"))
    back, bulk = (form.get(name, [""])[0] for name in ("back", "bulk"))
    if bulk == "use":  # from now on, checkboxes stand for this tag
        back = _with_tag(back, parse_tag(form.get("new", [MARKED])[0]))
    elif bulk:
        query = dict(parse_qsl(form.get("query", [""])[0], keep_blank_values=True))
        address = address_of(live, query)
        found = live.ask(select_records, address.question, copies=bulk == "copies")
        by_tag = {address.tag: {(shard, record) for shard, record in found}}
        tagged, untagged = ({}, by_tag) if bulk == "unmark" else (by_tag, {})
    live.marks.change(tagged, untagged)
    if "script" in form:
        return JSONResponse({tag: len(live.marks.records(tag)) for tag in untagged})
    return RedirectResponse(back if LOCAL_ADDRESS.fullmatch(back) else "/", 303)


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


def _list(live: Live, request: Request) -> Response:
    """Return the list of a tag as a file."""
    tag = parse_tag(request.query_params.get("tag", MARKED))
    name = quote(f"{tag}.txt")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return PlainTextResponse(live.marks.text(tag), headers=headers)


TAG_LISTS: Mapping[str, Handler] = {"/marked.txt": _list}
"""What is answered at an address, by the pattern of its path."""
