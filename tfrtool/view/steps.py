"""The steps of an episode on its page: the images of a step side by side, and its values."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tfrtool.errors import TfrtoolError, printable
from tfrtool.features.sequence_columns import SequenceColumns
from tfrtool.inspection.pictures.cameras import StepCameras
from tfrtool.inspection.pictures.pictures import ImageRoles
from tfrtool.inspection.table.record_query import Row, step_values
from tfrtool.view import drawings
from tfrtool.view.live import Live
from tfrtool.view.pieces import short

_LONGEST_VALUE, _VALUES, _FILM, _CHARTS, _FEWEST = 200, 200, 12, 40, 2


def cameras_of(live: Live) -> StepCameras | None:
    """Return the list of steps with images, if features.json or feature lists describe one."""
    declared = live.found.declared
    if declared is None:
        return None
    if isinstance(declared, SequenceColumns):
        roles = live.found.roles(0)
        names = [name for name in (roles.image, *roles.others) if name is not None]
        return StepCameras.of_feature_lists(declared.root, names)
    return StepCameras.of(declared.root)


def is_camera(live: Live, roles: ImageRoles) -> bool:
    """Return whether the image of a shard is one of those of steps."""
    cameras = cameras_of(live)
    return cameras is not None and roles.image in (*cameras.images, *cameras.image_names)


def steps_of(
    live: Live, row: Row, payload: bytes, step: int, camera: int, parts: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what a page shows of a step of a record; None if it has no steps with images.

    Args:
        live: the findings.
        row: the record.
        payload: its bytes.
        step: which step.
        camera: which camera the filmstrip is of.
        parts: the values of the record, of which charts are drawn.
    """
    cameras = cameras_of(live)
    if cameras is None or not payload:
        return None
    try:
        count = cameras.count(payload)
    except ValueError:
        return None
    step = max(min(step, count - 1), 0)
    charts = _charts(cameras, parts, step, count)
    film = range(min(count, _FILM))
    return {
        "name": printable(cameras.name),
        "count": count,
        "step": step,
        "camera": min(camera, len(cameras.images) - 1),
        "film": sorted({number * (count - 1) // max(len(film) - 1, 1) for number in film}),
        "cameras": [
            {"name": short(name), "base": f"/camera/{row.shard}/{row.offset}/{number}/"}
            for number, name in enumerate(cameras.image_names)
        ],
        "values_base": f"/step/{row.shard}/{row.offset}/",
        "values": [
            (name, text, charts.get(name, Markup("")))
            for name, text in (values_of(live, payload, step) if count else ())
        ],
    }


def _charts(
    cameras: StepCameras, parts: Mapping[str, Any], step: int, count: int
) -> dict[str, Markup]:
    """Return a chart of each number of the steps, by its name."""
    steps: Any = parts
    for name in cameras.path:
        steps = steps.get(name, {}) if isinstance(steps, Mapping) else {}
    if cameras.is_sequence:
        columns = {name: steps[name][:count] for name in steps}
    else:
        rows = [_flat(one) for one in steps if isinstance(one, Mapping)]
        columns = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
    drawn = {}
    for name, values in list(columns.items())[:_CHARTS]:
        lines = _lines(values)
        if lines:
            drawn[short(name)] = drawings.lines(lines, step, max(count, len(values)))
    return drawn


def _flat(step: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in step.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{path}{name}/")
        else:
            found[f"{path}{name}"] = value
    return found


def _lines(values: Sequence[Any]) -> list[list[float]]:
    """Return the numbers of all steps, a line for each component; none if they aren't numbers."""
    rows = [value if isinstance(value, list) else [value] for value in values]
    size = len(rows[0]) if rows else 0
    is_number = all(
        len(row) == size and all(isinstance(one, int | float) for one in row) for row in rows
    )
    if not is_number or not 0 < size <= drawings.COLORS or len(rows) < _FEWEST:
        return []
    return [[float(row[component]) for row in rows] for component in range(size)]


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
