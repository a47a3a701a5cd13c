"""Datasets that tests register with TFDS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CLASS_NAMES", "define_builders"]

CLASS_NAMES = ("zebra", "ant", "cow")
"""Class names in an order of their own."""


def define_builders(tfds: Any, package: Path) -> None:
    """Register datasets with TFDS, as its users do by defining them, once in a process.

    Args:
        tfds: the tensorflow_datasets module.
        package: an empty folder, for TFDS looks for files beside a builder's code.
    """
    if "my_digits" in tfds.list_builders(with_community_datasets=False):
        return
    features = tfds.features

    class Base(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc, call-arg]
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = package
        SUPERVISED: Any = ("image", "label")

        def _features(self) -> dict[str, Any]:
            return {
                "image": features.Image(shape=(5, 6, 1)),
                "label": features.ClassLabel(num_classes=3),
            }

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self,
                features=features.FeaturesDict(self._features()),
                supervised_keys=self.SUPERVISED,
            )

        def _split_generators(self, _: Any) -> Any:
            return {"test": self._generate_examples(4), "train": self._generate_examples(7)}

        def _record(self, number: int) -> dict[str, Any]:
            return {"image": np.full((5, 6, 1), number, np.uint8), "label": number % 3}

        def _generate_examples(self, count: int) -> Any:
            for number in range(count):
                yield number, self._record(number)

    class MyDigits(Base):
        """As MNIST: PNGs without names, in two splits."""

    class MyFarm(Base):
        """Named files, the same names in both splits, and records that have no class."""

        SUPERVISED: Any = None

        def _features(self) -> dict[str, Any]:
            return {
                "photo": features.Image(encoding_format="jpeg"),
                "file_name": features.Text(),
                "animal": features.ClassLabel(names=list(CLASS_NAMES)),
            }

        def _record(self, number: int) -> dict[str, Any]:
            image = np.full((8, 9, 3), number, np.uint8)
            return {"photo": image, "file_name": f"{number}.jpg", "animal": number % 4 - 1}

    class MyNameless(Base):
        """A feature for names, with names that can't be keys."""

        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in ("same", "control")]  # noqa: RUF012

        def _features(self) -> dict[str, Any]:
            return {**super()._features(), "filename": features.Text()}

        def _record(self, number: int) -> dict[str, Any]:
            name = "same" if self.builder_config.name == "same" else f"{number}\n"
            return {**super()._record(number), "filename": name}

    class MyTwoImages(Base):
        """Which feature is the image can't be told."""

        SUPERVISED: Any = None

        def _features(self) -> dict[str, Any]:
            return {**super()._features(), "depth": features.Image(shape=(5, 6, 1))}

        def _record(self, number: int) -> dict[str, Any]:
            record = super()._record(number)
            return {**record, "depth": record["image"]}

    class MyChosen(MyTwoImages):
        """The supervised keys tell."""

        SUPERVISED = ("depth", "label")

    class MyDepths(Base):
        """Images of floats, which TFDS stores as the bytes of colors."""

        def _features(self) -> dict[str, Any]:
            image = features.Image(shape=(5, 6, 1), dtype=np.float32)
            return {**super()._features(), "image": image}

        def _record(self, number: int) -> dict[str, Any]:
            return {**super()._record(number), "image": np.full((5, 6, 1), 0.5, np.float32)}

    class MyDownload(Base):
        """As most of the catalogue: its images are downloaded."""

        url_infos: Any = {}  # noqa: RUF012 - a property of the class, for tests to set

        def _split_generators(self, manager: Any) -> Any:
            (url,) = self.url_infos
            name = manager.download(url)
            return {"train": self._generate_examples(int(name.read_text()))}

    class MyBroken(Base):
        """Its generation fails, as without a network."""

        def _split_generators(self, _: Any) -> Any:
            raise ConnectionError("no way to the host\nand more")
