"""The steps of an episode on its page: the images of a step side by side, and its values."""

from typing import Any

from tfrtool.errors import TfrtoolError, printable
from tfrtool.inspection.pictures.cameras import StepCameras
from tfrtool.inspection.pictures.pictures import ImageRoles
from tfrtool.inspection.table.record_query import Row, step_values
from tfrtool.view.live import Live
from tfrtool.view.pieces import short

_LONGEST_VALUE, _VALUES = 200, 200


def cameras_of(live: Live) -> StepCameras | None:
    """Return the list of steps with images, if features.json describes one."""
    declared = live.found.declared
    return None if declared is None else StepCameras.of(declared.root)


def is_camera(live: Live, roles: ImageRoles) -> bool:
    """Return whether the image of a shard is one of those of steps."""
    cameras = cameras_of(live)
    return cameras is not None and roles.image in cameras.images


def steps_of(live: Live, row: Row, payload: bytes, step: int) -> dict[str, Any] | None:
    """Return what a page shows of a step of a record; None if it has no steps with images."""
    cameras = cameras_of(live)
    if cameras is None or not payload:
        return None
    try:
        count = cameras.count(payload)
    except ValueError:
        return None
    step = max(min(step, count - 1), 0)
    return {
        "name": printable(cameras.name),
        "count": count,
        "step": step,
        "cameras": [
            {"name": short(name), "base": f"/camera/{row.shard}/{row.offset}/{number}/"}
            for number, name in enumerate(cameras.image_names)
        ],
        "values_base": f"/step/{row.shard}/{row.offset}/",
        "values": values_of(live, payload, step) if count else [],
    }


def values_of(live: Live, payload: bytes, step: int) -> list[tuple[str, str]]:
    """Return the names and values of what a step has besides images; or why it can't be shown."""
    cameras, declared = cameras_of(live), live.found.declared
    if cameras is None or declared is None:
        return []
    try:
        found = live.ask(step_values, payload, declared, cameras, step)
    except TfrtoolError as error:
        return [("", printable(str(error)))]
    return [(short(name), short(text, _LONGEST_VALUE)) for name, text in found[:_VALUES]]
