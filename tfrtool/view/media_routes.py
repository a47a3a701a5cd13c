"""Addresses of the images, steps, sounds and videos of records."""

import re
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tfrtool.errors import UsageError
from tfrtool.images.pixels import encoded
from tfrtool.inspection.extract.media import media_file
from tfrtool.inspection.pictures.objects import mask_of, picture_of, thumbnail
from tfrtool.view.endpoints import Handler, numbers_in
from tfrtool.view.live import Live
from tfrtool.view.page_address import number_of
from tfrtool.view.record_media import LARGE, LARGEST
from tfrtool.view.steps import cameras_of, values_of


def _image(live: Live, request: Request) -> Response:
    """Return an image, decoded and encoded again."""
    shard, offset = numbers_in(request.path_params, "shard offset")
    query = request.query_params
    box, number = number_of(query.get("box", "160")), number_of(query.get("image", "0"))
    roles, item = live.found.roles(shard), live.reader.read(shard, offset)
    if item is None:
        return _picture(None)
    if box >= LARGE:
        return _picture(encoded(picture_of(item.payload, roles, min(box, LARGEST), number)))
    return _picture(encoded(thumbnail(item.payload, roles, max(box, 1))))


def _mask(live: Live, request: Request) -> Response:
    """Return a mask, decoded and encoded again."""
    shard, offset, number = numbers_in(request.path_params, "shard offset mask")
    roles, item = live.found.roles(shard), live.reader.read(shard, offset)
    if item is None:
        return _picture(None)
    return _picture(encoded(mask_of(item.payload, roles, number, LARGE), exact=True))


def _camera(live: Live, request: Request) -> Response:
    """Return an image of a step, decoded and encoded again."""
    shard, offset, number, step = numbers_in(request.path_params, "shard offset camera step")
    cameras, item = cameras_of(live), live.reader.read(shard, offset)
    if cameras is None or item is None:
        return _picture(None)
    box = min(number_of(request.query_params.get("box", str(LARGE))), LARGE)
    return _picture(encoded(cameras.picture(item.payload, number, step, max(box, 1))))


def _picture(data: bytes | None) -> Response:
    if data is None:
        raise IndexError("no picture")
    kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    return Response(data, media_type=kind)


def _step(live: Live, request: Request) -> Response:
    """Return the values of a step."""
    shard, offset, number = numbers_in(request.path_params, "shard offset step")
    item = live.reader.read(shard, offset)
    return JSONResponse([] if item is None else values_of(live, item.payload, number))


def _media(live: Live, request: Request) -> Response:
    """Return a sound or a video of a record, or the part of it that is asked for."""
    shard, offset, number = numbers_in(request.path_params, "shard offset number")
    item = live.reader.read(shard, offset)
    try:
        data, kind = media_file(b"" if item is None else item.payload, live.found.root, number)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return _part_of(data, kind, request.headers.get("range", ""))


def _part_of(data: bytes, kind: str, wanted: str) -> Response:
    """Return the bytes of a Range header, or all if it has no range or several (RFC 9110, 14)."""
    headers = {"Accept-Ranges": "bytes"}
    part = re.fullmatch("bytes=([0-9]{0,12})-([0-9]{0,12})", wanted)
    if (
        part is None
        or part[0] == "bytes=-"
        or (part[1] and part[2] and int(part[2]) < int(part[1]))
    ):
        return Response(data, media_type=kind, headers=headers)
    if part[1]:
        start, end = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
    else:  # that many at the end
        start, end = max(len(data) - int(part[2]), 0), len(data) - 1
    if start >= len(data):
        headers["Content-Range"] = f"bytes */{len(data)}"
        return Response(b"", 416, media_type=kind, headers=headers)
    headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
    return Response(data[start : end + 1], 206, media_type=kind, headers=headers)


MEDIA: Mapping[str, Handler] = {
    "/image/{shard}/{offset}": _image,
    "/mask/{shard}/{offset}/{mask}": _mask,
    "/camera/{shard}/{offset}/{camera}/{step}": _camera,
    "/step/{shard}/{offset}/{step}": _step,
    "/media/{shard}/{offset}/{number}": _media,
}
"""What is answered at an address, by the pattern of its path."""
