"""The TF Object Detection API's label map: names of classes by their numbers, as protobuf text."""

import json
from collections.abc import Mapping


def label_map_text(names: Mapping[int, str]) -> str:
    """Return the contents of a ``label_map.pbtxt``: names by numbers above 0."""
    items = names.items()
    return "\n".join(f"item {{\n  id: {n}\n  name: {_quoted(name)}\n}}\n" for n, name in items)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # protobuf text has the same escapes
