"""MLCommons' description of a dataset: Croissant 1.0, as JSON-LD.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tfrtool.errors import DatasetError, printable
from tfrtool.examples.example import DType, feature_key
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.examples.tfds_metadata import Json, WrittenShard, read_written_shards
from tfrtool.inspection.dataset.dataset_summary import UNSPLIT, DatasetSummary, inspect_dataset
from tfrtool.inspection.schema.shard_schema import InferredSchema, infer_schema
from tfrtool.records.compression import Compression
from tfrtool.records.shards import Shard
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnProgress, silent

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
    """A description, and what it rests on."""

    summary: DatasetSummary
    content: Json  # JSON-LD
    whole: bool  # whether there are no faults, and all records and features are in


def croissant(
    dataset: str | os.PathLike[str],
    *,
    label: str | None = None,
    license: str | None = None,  # noqa: A002
    url: str | None = None,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> Croissant:
    """Describe a dataset to those who look for one, and to ``mlcroissant``.

    All shards are read: for their records and faults, for the features, and for their SHA-256,
    where no report of a write has it.

    Args:
        dataset: the dataset's directory, as in `inspect_dataset`.
        label: the name of the label feature; None finds it out.
        license: its licence, by URL or by its name in SPDX' list; left out where it isn't given.
        url: its home page; likewise.
        workers: processes to read shards with; None takes the cores.
        on_progress: called after each shard.

    Raises:
        DatasetError: there are no shards.
        ShardError: a shard can't be read, or none of them holds Examples or SequenceExamples.
    """
    summary = inspect_dataset(dataset, label=label, workers=workers, on_progress=on_progress)
    root = summary.dataset
    shards = [one.shard for split in summary.splits.values() for one in split.shards]
    paths = [shard.path for shard in shards]
    inferred = infer_schema(paths, workers=workers, on_progress=on_progress)
    written: Mapping[str, WrittenShard] = {}
    with contextlib.suppress(DatasetError):  # it is among the faults
        written = read_written_shards(root)
    names = {path: path.relative_to(root).as_posix() for path in paths}
    files = _named("cr:FileSet", "shards", "shards") | {"encodingFormat": _TFRECORD}
    content = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": summary.name,
        "version": summary.version,
        "license": license,
        "url": url,
        "distribution": [
            *(_file(shard, names[shard.path], written.get(names[shard.path])) for shard in shards),
            {**files, "includes": list(names.values())},
        ],
        "recordSet": _record_sets(summary, inferred, names),
    }
    kept = {name: value for name, value in content.items() if value is not None}
    whole = not (summary.faults or inferred.losses or inferred.left_out)
    return Croissant(summary, kept, whole)


def _file(shard: Shard, name: str, written: WrittenShard | None) -> Json:
    # Reading the dataset held the shard against the report.
    digest = None if written is None or written.bytes != shard.bytes else written.sha256
    packed = shard.compression
    plain = packed is Compression.NONE
    return _named("cr:FileObject", name, name) | {
        "contentUrl": quote(feature_key(name)),
        "contentSize": f"{shard.bytes} B",
        "encodingFormat": _TFRECORD if plain else [f"application/{packed.value}", _TFRECORD],
        "sha256": digest or _sha256(shard.path),
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _record_sets(
    summary: DatasetSummary, inferred: InferredSchema, names: Mapping[Path, str]
) -> list[Json]:
    splits = [name for name in summary.splits if name != UNSPLIT]
    pattern = f"({'|'.join(map(re.escape, sorted(splits, key=len, reverse=True)))})"
    sets = [_names("splits", "cr:Split", splits)] if splits else []
    classes = LabelNames.beside(summary.dataset, summary.label).names
    sets += [_names("labels", "sc:Enumeration", classes)] if classes else []
    fields = [_field(feature, inferred.records) for feature in inferred.features]
    told = all(
        (found := re.search(pattern, names[one.shard.path])) and found[1] == split
        for split in splits
        for one in summary.splits[split].shards
    )
    if splits and told and "split" not in {feature.name for feature in inferred.features}:
        field = _named("cr:Field", "records/split", "split") | {"dataType": "sc:Text"}
        source = {"extract": {"fileProperty": "fullpath"}, "transform": {"regex": pattern}}
        field["source"] = {"fileSet": {"@id": "shards"}, **source}
        fields.append(field | {"references": {"field": {"@id": "splits/name"}}})
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
