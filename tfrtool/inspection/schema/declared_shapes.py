"""Shapes that features.json of TFDS gives features, by which records store them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfrtool.examples.fields import Encoding, Field, Kind, ListOf, Struct, image_sizes, join
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.features.tfds_tree import tree_of_tfds
from tfrtool.storage.json_values import read_json
from tfrtool.storage.remote_path import AnyPath


class DeclaredShape(NamedTuple):
    """The shape of a feature's values, and of its images; None for any size."""

    values: tuple[int | None, ...] = ()
    image: tuple[int | None, ...] = ()


def declared_shapes(folders: Iterable[AnyPath]) -> dict[str, DeclaredShape]:
    """Return the shapes of stored features, by name.

    There are none if a folder has no valid features.json, or if two of them differ.
    """
    found: list[dict[str, DeclaredShape]] = []
    for folder in folders:
        try:
            root, _ = tree_of_tfds(read_json(folder / FEATURES))
        except (OSError, ValueError):
            return {}
        found.append(dict(_shapes(root, "", ())))
    first, *others = found or [{}]
    return first if all(other == first for other in others) else {}


def _shapes(
    item: Field, path: str, lengths: tuple[int | None, ...]
) -> Iterator[tuple[str, DeclaredShape]]:
    if isinstance(item, Struct):
        for name, part in item.fields.items():
            yield from _shapes(part, join(path, name), lengths)
    elif isinstance(item, ListOf):
        yield from _shapes(item.item, path, (*lengths, item.length))
    elif item.kind is Kind.IMAGE:
        yield path, DeclaredShape(image=image_sizes(item))
    elif item.encoding is Encoding.NONE:
        yield path, DeclaredShape(values=(*lengths, *item.shape))
