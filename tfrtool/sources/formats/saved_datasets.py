"""Folders of Hugging Face's ``save_to_disk``: Arrow files, and JSON that lists them."""

from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.storage.json_values import read_json
from tfrtool.storage.remote_path import AnyPath

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


def saved_files(folder: AnyPath) -> list[AnyPath]:
    """Return the Arrow files of a dataset, or of all its splits; none for another folder.

    Raises:
        SourceError: the JSON is damaged, or names files elsewhere.
    """
    if not (folder / _SPLITS).is_file():
        is_saved = (folder / _STATE).is_file() and (folder / _INFO).is_file()
        return _files(folder) if is_saved else []
    with os_errors_as(SourceError, folder):
        known = _read(folder / _SPLITS)
        names = [_plain(name, folder / _SPLITS) for name in _listed(known, "splits", folder)]
        return [file for name in names for file in _files(folder / name)]


def _files(folder: AnyPath) -> list[AnyPath]:
    with os_errors_as(SourceError, folder):
        state = _read(folder / _STATE)
        if state.get("_indices_data_files") or state.get("_indices_files"):
            what, hint = "rows of a saved dataset are selected by an index", "save it again"
            raise SourceError(what, path=folder, hint=hint)
        named = [one.get("filename") for one in _listed(state, "_data_files", folder)]
        return [folder / _plain(name, folder / _STATE) for name in named]


def _read(path: AnyPath) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (ValueError, RecursionError) as error:
        raise SourceError("not valid JSON", path=path) from error
    return found if isinstance(found, dict) else {}


def _listed(known: dict[str, Any], key: str, folder: AnyPath) -> list[Any]:
    found = known.get(key)
    kinds = dict if key == "_data_files" else str
    if not isinstance(found, list) or not all(isinstance(one, kinds) for one in found):
        raise SourceError(f"damaged metadata of a saved dataset: no list {key!r}", path=folder)
    return found


def _plain(name: object, path: AnyPath) -> str:
    if not isinstance(name, str) or Path(name).name != name:
        raise SourceError(f"invalid file name {printable(str(name)[:80])!r}", path=path)
    return name
