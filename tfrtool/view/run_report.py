"""The report of a training run: one HTML file of what ``tfrtool train`` left in its folder."""

import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tfrtool.errors import DatasetError, printable
from tfrtool.images.pixels import decode_picture, encoded
from tfrtool.storage.arguments import as_path
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import open_regular
from tfrtool.view.drawings import lines
from tfrtool.view.report import check_page, write_page

_CURVES = ("loss", "accuracy", "mean_average_precision")
_PICTURES = {"confusion.png": "Confusion matrix", "most_wrong.png": "Worst mistakes"}
_SIDE = 1600
_LISTED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReportFile:
    """A report of a training run that was written.

    Attributes:
        out: the HTML file.
        bytes: size of the file, in bytes.
        epochs: number of epochs in the report.
        evaluated: whether the run's directory also has an evaluation.
    """

    out: Path
    bytes: int
    epochs: int
    evaluated: bool


def run_report(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, overwrite: bool = False
) -> RunReportFile:
    """Write an HTML file about a training run: curves, settings, input wait and evaluation.

    Args:
        run: directory that ``train`` wrote to, and possibly ``evaluate``.
        out: file to write, with the extension .html.
        overwrite: whether to replace an existing file.

    Raises:
        DatasetError: there is no ``history.json``, or ``train`` did not write it.
        UsageError: ``out`` exists or has another extension.
        WriteError: the file can't be written.
    """
    run, out = as_path(run), as_path(out)
    check_page(out, overwrite=overwrite)
    history = _read(run / "history.json", "tfrtool train")
    if history is None:
        raise DatasetError(
            "no history.json", path=run, hint="pass the output directory of a training run"
        )
    evaluation = _read(run / "evaluation.json", "tfrtool evaluate")
    path = run / "history.json"
    with reading_metadata(path, "tfrtool train"):
        shown = run_pieces(history["epochs"], history["run"])
    shown["pictures"] = {title: _picture(run / name) for name, title in _PICTURES.items()}
    if evaluation is not None:
        with reading_metadata(run / "evaluation.json", "tfrtool evaluate"):
            shown["figures"] = _plain(evaluation)
            shown["classes"] = _classes(evaluation)
    written = write_page(
        out,
        "run.html",
        overwrite=overwrite,
        heading=printable(run.resolve().name),
        **shown,
    )
    return RunReportFile(
        out=out,
        bytes=written,
        epochs=len(history["epochs"]),
        evaluated=evaluation is not None,
    )


def run_pieces(epochs: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a run: of what ``train --json`` prints, each and the last."""
    curves: dict[str, Markup] = {}
    keys = _keys(epochs)
    for name in _CURVES:
        series = {
            label: [_number(one.get(key)) for one in epochs]
            for label, key in (("training", name), ("validation", f"val_{name}"))
        }
        drawn = lines(series, name)
        curves |= {name.replace("_", " ").capitalize(): drawn} if drawn else {}
    waits = [_number(one.get("input_wait_fraction")) for one in epochs]
    curves |= {"Time spent waiting for input": lines({"fraction": waits}, "input wait")}
    return {
        "curves": {name: drawn for name, drawn in curves.items() if drawn},
        "epochs": [{key: one.get(key) for key in keys} for one in epochs[:_LISTED]],
        "keys": keys,
        "plan": _plain(run),
        "figures": {},
        "pictures": {},
        "classes": [],
    }


def _keys(epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    held = dict.fromkeys(key for one in epochs for key, value in one.items() if value is not None)
    return [str(key) for key in held][:12]


def _number(value: Any) -> float | None:
    """Return what can be drawn: JSON may have 1e999, and texts where numbers are expected."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e100 else None


def _plain(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of an object that are no objects, as text."""
    return {
        printable(str(key)): printable(
            ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        )[:2000]
        for key, value in [*data.items()][:_LISTED]
        if isinstance(value, str | int | float)
        or (isinstance(value, list) and value and not isinstance(value[0], dict | list))
    }


def _classes(evaluation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an evaluation's table of classes, all with the same keys."""
    rows = evaluation.get("classes", ())[:_LISTED]
    keys = list(dict.fromkeys(key for one in rows for key in one))[:12]
    return [{key: one.get(key) for key in keys} for one in rows]


def _read(path: Path, writer: str) -> Any:
    with suppress(FileNotFoundError), reading_metadata(path, writer):
        data = read_json(path, follow=False)
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        return data
    return None


def _picture(path: Path) -> str | None:
    """Return a picture in a run's folder, encoded anew, as a data URL; None if there is none."""
    try:
        with open_regular(path, follow=False) as file:
            data = file.read(MAX_IMAGE_BYTES)
    except OSError:
        return None
    made = encoded(decode_picture(data, _SIDE), exact=True)
    return f"data:image/png;base64,{base64.b64encode(made).decode()}" if made else None
