"""What makes files of payloads a dataset of TFDS (tensorflow-datasets 4.9.10)."""

import json
from collections.abc import Mapping

from tfrtool.convert.formats.registry import Content
from tfrtool.examples.arrow.columns import Column, Form
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    DatasetInfo,
    Json,
    connector,
    dimensions,
)


def tfds_texts(content: Content, info: DatasetInfo, file_format: str) -> Mapping[str, str]:
    """Return class names, features.json and dataset_info.json; nothing where TFDS reads no such."""
    if content.columns.kind is not PayloadKind.EXAMPLE:
        return {}
    texts = {
        f"{name.replace('/', '_')}.labels.txt": "".join(f"{one}\n" for one in names)
        for name, names in content.class_names.items()
    }
    described = info.to_json() | {"fileFormat": file_format}
    if not info.image_feature or not info.label_feature:
        del described["supervisedKeys"]
    texts[FEATURES] = json.dumps(content.tfds or tfds_features_of(content), indent=1)
    texts[DATASET_INFO] = json.dumps(described, indent=1)
    return texts


def tfds_features_of(content: Content) -> Json:
    """Return a features.json; TFDS reads records without what it can't describe."""
    named = zip(content.columns.names, content.columns.columns, strict=True)
    features = {
        name: _feature(name, one, content) for name, one in named if one.form is not Form.FEATURE
    }
    return connector("FeaturesDict", featuresDict={"features": features})


def _feature(name: str, column: Column, content: Content) -> Json:
    if name in content.images:
        return connector("Image", image={"dtype": "uint8", "shape": dimensions(-1, -1, 3)})
    if name in content.class_names:
        count = str(len(content.class_names[name]))
        return connector("ClassLabel", classLabel={"numClasses": count})
    scalar = connector("Scalar", column.dtype.value if column.dtype else None)
    if column.form is Form.SCALAR:
        return scalar
    return connector("Sequence", sequence={"feature": scalar, "length": "-1"})
