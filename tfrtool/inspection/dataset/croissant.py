"""MLCommons' description of a dataset: Croissant 1.0, as JSON-LD.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

import os
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from tfrtool.declare import takes
from tfrtool.engines.pool import WORTH_A_PROCESS, engine_of
from tfrtool.errors import printable
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import DType, feature_key
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.examples.tfds_metadata import DATASET_INFO, Json
from tfrtool.inspection.dataset.dataset_summary import (
    UNSPLIT,
    DatasetSummary,
    dataset_report,
    labels_asked,
)
from tfrtool.inspection.inspect_options import DatasetOptions
from tfrtool.inspection.profile import Asked, ShardProfile, profile_shards
from tfrtool.inspection.schema.shard_schema import InferredSchema, schema_report
from tfrtool.records.compression import Compression
from tfrtool.records.shards import find_folders
from tfrtool.storage.commit import unchanged_while_read
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

_NUMBERS = {DType.INT64: "cr:Int64", DType.FLOAT32: "cr:Float32"}
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
    with unchanged_while_read(find_folders(dataset).root, DATASET_INFO):
        found = find_files(dataset, lambda name: name or UNSPLIT)
        first, labels = labels_asked(found, options.label)
        asked = Asked(labels=labels, features=True, hashed={*found.paths})
        with engine_of(options.engine, options.engine_address, options.workers) as pool:
            profiles = [
                *profile_shards(
                    found.paths, asked, pool, WORTH_A_PROCESS, on_progress=options.on_progress
                )
            ]
    summary = dataset_report(found, first, profiles, options.label)
    inferred = schema_report(profiles, len(profiles))
    names = [one.path.relative_to(summary.dataset).as_posix() for one in profiles]
    files = _named("cr:FileSet", "shards", "shards") | {"encodingFormat": _TFRECORD}
    content: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": summary.name,
        **({} if summary.version is None else {"version": summary.version}),
        "distribution": [*map(_file, profiles, names), {**files, "includes": names}],
        "recordSet": _record_sets(summary, inferred),
    }
    whole = not (summary.faults or inferred.losses or inferred.skipped)
    return Croissant(summary, content, whole)


def _file(profile: ShardProfile, name: str) -> Json:
    kind = profile.compression
    plain = kind is Compression.NONE
    return _named("cr:FileObject", name, name) | {
        "contentUrl": quote(feature_key(name)),
        "contentSize": f"{profile.shard.bytes if profile.shard else 0} B",
        "encodingFormat": _TFRECORD if plain else [f"application/{kind.value}", _TFRECORD],
        "sha256": profile.sha256 or file_sha256(profile.path),
    }


def _record_sets(summary: DatasetSummary, inferred: InferredSchema) -> list[Json]:
    splits = [name for name in summary.splits if name != UNSPLIT]
    sets = [_names("splits", "cr:Split", splits)] if splits else []
    classes = [*filter(None, LabelNames.beside(summary.dataset, summary.label).names)]
    sets += [_names("labels", "sc:Enumeration", classes)] if classes else []
    fields = [_field(feature, inferred.records) for feature in inferred.features]
    return [*sets, _named("cr:RecordSet", "records", "records") | {"field": fields}]


def _field(feature: FeatureStatistics, records: int) -> Json:
    kinds = {_MEDIA.get(content.partition("/")[0], content) for content in feature.content}
    field = _named("cr:Field", f"records/{feature.name}", feature.name)
    repeated = feature.is_list or feature.size(records) != 1
    if feature.dtype in _NUMBERS:
        field["dataType"] = _NUMBERS[feature.dtype]
    elif len(kinds) == 1 and kinds <= set(_MEDIA.values()):
        (field["dataType"],) = kinds
    elif kinds <= {"text", "empty"}:
        field["dataType"] = "sc:Text"
    else:  # Croissant has no type for bytes
        field["dataType"], repeated = "cr:UInt8", True
    if repeated:
        field["repeated"] = True
    extract = {"column": printable(feature.name)}
    return field | {"source": {"fileSet": {"@id": "shards"}, "extract": extract}}


def _names(name: str, kind: str, values: Sequence[str]) -> Json:
    """Return a record set of names that are all there are."""
    held = f"{name}/name"
    return _named("cr:RecordSet", name, name) | {
        "dataType": kind,
        "key": {"@id": held},
        "field": [_named("cr:Field", held, "name") | {"dataType": "sc:Text"}],
        "data": [{held: value} for value in values],
    }


def _named(kind: str, identifier: str, name: str) -> Json:
    return {"@type": kind, "@id": quote(feature_key(identifier)), "name": printable(name)}
