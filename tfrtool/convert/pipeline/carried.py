"""The metadata of sources, as it goes along with their records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, SplitInfo
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.opening import read_bounded
from tfrtool.writing.write_report import json_text


class CarriedMetadata:
    """What describes the records of some directories, in the way of TFDS.

    Attributes:
        labels: the texts of the files with class names, by their names.
        features: the contents of features.json; None where there is none, or they differ.
        info: the contents of dataset_info.json; empty where there is none.
        warnings: what could not be kept, a sentence each.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Read what lies in directories.

        Raises:
            DatasetError: it can't be read; or class names differ, so that the same label would mean
                two things.
        """
        self.labels: dict[str, str] = {}
        self.features: Any = None
        self.info: dict[str, Any] = {}
        self.warnings: list[str] = []
        homes: dict[str, Path] = {}
        for folder in folders:
            for path in sorted(folder.glob("*.labels.txt")):
                with reading_metadata(path, "TFDS"):
                    text = read_bounded(path).decode("utf-8")
                if _lines(self.labels.setdefault(path.name, text)) != _lines(text):
                    raise DatasetError(
                        "has other class names, so that labels would mean something else",
                        path=path,
                        expected=f"those of {homes[path.name]}",
                    )
                homes.setdefault(path.name, path)
            features = self._read(folder / FEATURES)
            if features is not None and features != self.features:
                if self.features is not None:
                    self.warnings.append(
                        f"{folder / FEATURES} differs from that of {homes[FEATURES]}: the result "
                        "has none, and TFDS can't read it without"
                    )
                self.features, homes[FEATURES] = features, folder
            info = self._read(folder / DATASET_INFO)
            self.info = self.info or (info if isinstance(info, dict) else {})
        if self.warnings:
            self.features = None

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            with reading_metadata(path, "TFDS"):
                return read_json(path)
        except FileNotFoundError:
            return None

    def texts(
        self, name: str, version: str, splits: Sequence[SplitInfo], form: str = "tfrecord"
    ) -> dict[str, str]:
        """Return the files that describe a dataset of these splits, by their names, in order."""
        info = {**self.info, "fileFormat": form, "name": name, "version": version}
        info["splits"] = [split.to_json() for split in splits]
        texts = dict(self.labels)
        if self.features is not None:
            texts[FEATURES] = json_text(self.features)
        return {**texts, DATASET_INFO: json_text(info)}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
