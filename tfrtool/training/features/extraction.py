"""A frozen base's outputs in the place of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tfrtool.loading.pipeline.load_options import Cache, LoadOptions, Rescale
from tfrtool.loading.pipeline.pipeline import count_images, load
from tfrtool.training.features.features import Features, FrozenBase, extract_features, freeze
from tfrtool.training.features.features_precision import Precision
from tfrtool.training.features.head import head_batches
from tfrtool.training.features.row_order import row_order
from tfrtool.training.run.epochs import Head
from tfrtool.training.run.feed import Feed
from tfrtool.training.run.listener import Phase
from tfrtool.training.run.training_data import Material

__all__ = ["Extraction", "begin_extraction"]

_BATCH = 32
"""Images decoded for the base at a time, a multiple of what it takes."""

_AHEAD = 8
"""Such batches that are decoded while the model is built: 39 MB at 224 pixels."""

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Images on their way to a base.

    Attributes:
        material: what is trained on.
        training: batches of images to train on, uint8.
        validation: likewise; None where nothing is validated.
    """

    material: Material
    training: Feed
    validation: Feed | None

    def run(
        self,
        base: Any,
        rescale: Rescale,
        precision: Precision,
        on_phase: Callable[[Phase], None],
    ) -> tuple[tuple[Feed, Feed | None], Head]:
        """Run the base over all images.

        Args:
            base: a ``keras.Model`` from rescaled images to features, float32 [batch, width].
            rescale: what pixels become before.
            precision: what the base computes in.
            on_phase: told how far this is.

        Returns:
            Feeds of features, in the order that the images would have, and how long it took.

        Raises:
            UsageError: the processor can't compute in that precision.
            DatasetError: a record can't be used; names it.
            CorruptShardError: a shard is damaged; names the record.
        """
        frozen = freeze(base, self.material.training.image_size, rescale, precision)
        total = self.training.images + (0 if self.validation is None else self.validation.images)

        def tell(done: int) -> None:
            on_phase(Phase(name="features", done=done, total=total))

        with self.material.naming_damage():
            options = self.material.training
            order = row_order(self.training.images, options)
            features = _extract(frozen, self.training, tell)
            steps = -(-len(features) // options.batch_size)
            feed = Feed(_Ordered(features, order), len(features), steps, at_once=True)
            spent = Head(seconds=features.seconds, waited=features.waited)
            if self.validation is None:
                return (feed, None), spent
            validated = _extract(
                frozen, self.validation, lambda done: tell(self.training.images + done)
            )
        spent = Head(
            seconds=spent.seconds + validated.seconds, waited=spent.waited + validated.waited
        )
        batches = _in_order(validated)
        return (feed, Feed(batches, len(validated), len(batches), at_once=False)), spent


def begin_extraction(material: Material) -> Extraction:
    """Begin to decode images, while the model is still being built."""
    training, validation = _images(material, material.training), None
    training.start()
    if material.validation is not None:
        validation = _images(material, material.validation)
        validation.start()  # or the base would wait when it comes to these
    return Extraction(material=material, training=training, validation=validation)


def _images(material: Material, options: LoadOptions) -> Feed:
    once = replace(
        options,
        rescale=None,
        cache=Cache.NONE if options.cache is Cache.FEATURES else options.cache,
        training=False,
        augment=None,
        epochs=1,
        first_epoch=0,
        batch_size=_BATCH,
        prefetch=_AHEAD if options.prefetch is None else options.prefetch,
    )
    images = count_images(material.dataset, once)
    return Feed(load(material.dataset, once), images, -(-images // _BATCH), at_once=True)


def _extract(base: FrozenBase, feed: Feed, tell: Callable[[int], None]) -> Features:
    return extract_features(base, feed.epoch(), feed.images, tell)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Batches of features in the order of their rows' numbers."""

    features: Features
    order: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return head_batches(self.features, self.order)


def _in_order(features: Features) -> list[tuple[Any, Any]]:
    return [
        (features.values[start : start + _VALIDATED], features.labels[start : start + _VALIDATED])
        for start in range(0, len(features), _VALIDATED)
    ]
