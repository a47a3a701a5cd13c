"""MLCommons' description of a dataset: Croissant 1.0, as JSON-LD.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

import os
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from tfrtool.declare import takes
from tfrtool.errors import printable
from tfrtool.examples.example import DType, feature_key
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.examples.tfds_metadata import Json
from tfrtool.inspection.dataset.dataset_summary import UNSPLIT, DatasetSummary, read_dataset
from tfrtool.inspection.inspect_options import DatasetOptions
from tfrtool.inspection.profile import ShardProfile
from tfrtool.inspection.schema.shard_schema import schema_report
from tfrtool.records.compression import Compression
from tfrtool.storage.opening import file_sha256

_TFRECORD = "https://www.tensorflow.org/tutorials/load_data/tfrecord"
"""What the specification wants where a format has no media type: its page."""

_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format "
    "includes isLiveDataset jsonPath key md5 parentField path recordSet references regex "
    "repeated replace samplingRate separator source subField transform"
)
_CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
} | {name: f"cr:{name}" for name in _TERMS.split()}

_NUMBERS: dict[DType | None, str] = {DType.INT64: "cr:Int64", DType.FLOAT32: "cr:Float32"}
_MEDIA = {"image": "sc:ImageObject", "audio": "sc:AudioObject", "video": "sc:VideoObject"}


class Croissant(NamedTuple):
    """Croissant description of a dataset.

    Attributes:
        summary: summary of the dataset that it is based on.
        content: the description, as a JSON-LD object.
        whole: whether no faults were found and all records and features are included.
    """

    summary: DatasetSummary
    content: Json
    whole: bool


@takes(DatasetOptions)
def croissant(dataset: str | os.PathLike[str], options: DatasetOptions) -> Croissant:
    """Describe a dataset in the Croissant format, for search engines and ``mlcroissant``.

    All shards are read for their records, faults and features, and for their SHA-256 checksums.

    Args:
        dataset: dataset directory, as for `inspect_dataset`.

    Raises:
        DatasetError: no shards were found.
        ShardError: a shard can't be read, or none contains Examples or SequenceExamples.
    """
    summary, profiles = read_dataset(dataset, options, described=True)
    inferred = schema_report(profiles, len(profiles))
    names = [one.path.relative_to(summary.dataset).as_posix() for one in profiles]
    files = _named("cr:FileSet", "shards") | {"encodingFormat": _TFRECORD, "includes": names}
    sets = [_values("splits", "cr:Split", [name for name in summary.splits if name != UNSPLIT])]
    classes = LabelNames.read(summary.dataset, summary.label).names
    sets.append(_values("labels", "sc:Enumeration", [*filter(None, classes)]))
    fields = [_field(feature, inferred.records) for feature in inferred.features]
    sets.append(_named("cr:RecordSet", "records") | {"field": fields})
    content: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": summary.name,
        **({} if summary.version is None else {"version": summary.version}),
        "distribution": [*map(_file, profiles, names), files],
        "recordSet": [one for one in sets if one.get("data") != []],
    }
    is_complete = not (summary.faults or inferred.losses or inferred.skipped)
    return Croissant(summary, content, is_complete)


def _file(profile: ShardProfile, name: str) -> Json:
    packed = profile.compression is not Compression.NONE
    kinds = [f"application/{profile.compression.value}", _TFRECORD] if packed else _TFRECORD
    return _named("cr:FileObject", name) | {
        "contentUrl": quote(feature_key(name)),
        "contentSize": f"{profile.shard.bytes if profile.shard else 0} B",
        "encodingFormat": kinds,
        "sha256": profile.sha256 or file_sha256(profile.path),
    }


def _field(feature: FeatureStatistics, records: int) -> Json:
    contents = {_MEDIA.get(one.partition("/")[0], one) for one in feature.content}
    repeated = feature.is_list or feature.size(records) != 1
    kind = _NUMBERS.get(feature.dtype)
    if kind is None and len(contents) == 1 and contents <= {*_MEDIA.values()}:
        (kind,) = contents
    elif kind is None and contents <= {"text", "empty"}:
        kind = "sc:Text"
    elif kind is None:  # Croissant has no type for bytes
        kind, repeated = "cr:UInt8", True
    return {
        **_named("cr:Field", f"records/{feature.name}", feature.name),
        "dataType": kind,
        **({"repeated": True} if repeated else {}),
        "source": {
            "fileSet": {"@id": "shards"},
            "extract": {"column": printable(feature.name)},
        },
    }


def _values(name: str, kind: str, values: Sequence[str]) -> Json:
    """Return a record set of names."""
    key = f"{name}/name"
    return _named("cr:RecordSet", name) | {
        "dataType": kind,
        "key": {"@id": key},
        "field": [_named("cr:Field", key, "name") | {"dataType": "sc:Text"}],
        "data": [{key: value} for value in values],
    }


def _named(kind: str, identifier: str, name: str | None = None) -> Json:
    name = printable(identifier if name is None else name)
    return {"@type": kind, "@id": quote(feature_key(identifier)), "name": name}
