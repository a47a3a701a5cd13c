"""A small dataset of episodes, as RLDS has them: steps with an action, a reward and two cameras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tfrtool
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.examples.example import DType, Feature

__all__ = ["LENGTHS", "ROOT", "write_robot"]

LENGTHS = (2, 0, 3)
"""Steps of each episode."""

_NUMBER = "tensorflow_datasets.core.features.tensor_feature.Tensor"


def _tensor(dtype: str, *sizes: int) -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]} if sizes else {}
    tensor = {"shape": shape, "dtype": dtype, "encoding": "none"}
    return {"pythonClassName": _NUMBER, "tensor": tensor}


def _dict(**features: Any) -> dict[str, Any]:
    return {"pythonClassName": "FeaturesDict", "featuresDict": {"features": features}}


_IMAGE = {"pythonClassName": "Image", "image": {"dtype": "uint8"}}
_TEXT = {"pythonClassName": "Text", "text": {}}
_STEP = _dict(
    action=_tensor("float32", 2),
    reward=_tensor("float32"),
    is_last=_tensor("bool"),
    camera=_IMAGE,
    observation=_dict(wrist=_IMAGE, state=_tensor("float64", 3)),
)
ROOT = _dict(
    file=_TEXT,
    split_number=_tensor("uint8"),
    steps={
        "pythonClassName": "tensorflow_datasets.core.features.dataset_feature.Dataset",
        "sequence": {"feature": _STEP, "length": "-1"},
    },
)
"""What features.json says."""


def write_robot(folder: Path, **changes: Any) -> Path:
    """Write the dataset with some features changed in every record, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "features.json").write_text(json.dumps(ROOT))
    payloads = []
    for number, length in enumerate(LENGTHS):
        steps, images = range(length), [image_bytes("PNG", size=(4, 3))] * length
        features: dict[str, Any] = {
            "file": f"/episodes/{number}.npy",
            "split_number": number,
            "steps/action": [float(2 * step + at) for step in steps for at in range(2)],
            "steps/reward": [float(step) for step in steps],
            "steps/is_last": [int(step == length - 1) for step in steps],
            "steps/camera": images,
            "steps/observation/wrist": images,
            "steps/observation/state": [float(step) for step in steps for _ in range(3)],
        }
        known = {**features, **changes}
        payloads.append(
            tfrtool.encode_example({k: _typed(k, v) for k, v in known.items() if v is not None})
        )
    (folder / "robot-train.tfrecord-00000-of-00001").write_bytes(shard_of(payloads))
    return folder


def _typed(name: str, value: Any) -> Any:
    """Return a value, or the feature without values that TFDS writes for an episode of no steps."""
    if value != []:
        return value
    images = {"steps/camera", "steps/observation/wrist"}
    dtype = DType.INT64 if name == "steps/is_last" else DType.FLOAT32
    return Feature(dtype=DType.STRING if name in images else dtype, values=())
