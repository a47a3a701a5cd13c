"""``tfrtool inspect schema``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import Bars, Outcome, emit, note, warn
from tfrtool.cli.parameters import SHARDS, command, resolve_sources
from tfrtool.cli.schema_text import feature_table, loss_text
from tfrtool.declare import option
from tfrtool.errors import SchemaError, ShardError, UsageError, human_count
from tfrtool.examples.feature_text import conflict_text, name_text
from tfrtool.inspection.inspect_options import SchemaOptions, TypesOption
from tfrtool.inspection.shard_options import ProtoOptions
from tfrtool.page import Heading, Page, Prose, Table

if TYPE_CHECKING:
    from tfrtool.inspection.schema.shard_schema import InferredSchema
    from tfrtool.records.stream import Stream
    from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, kw_only=True)
class _InspectSchemaOptions(ProtoOptions, TypesOption):
    emit: Literal["table", "python", "json", "tfds", "schema", "pbtxt"] = option(
        "table",
        "Print a table, Python code for tf.io, JSON for --description, the features.json of TFDS, "
        "or a schema for verify: as JSON, or as TensorFlow Metadata's schema.pbtxt.",
    )


@command(
    "tfrtool inspect schema 'data/train*.tfrecord*'",
    "tfrtool inspect schema train.tfrecord --emit python >> input.py",
    "tfrtool inspect schema train.tfrecord --emit json > description.json",
    "tfrtool inspect schema train.tfrecord --emit schema > schema.json",
    options=(SchemaOptions, _InspectSchemaOptions),
)
@SHARDS
def inspect_schema_command(shards: tuple[str, ...], as_json: bool, **words: Any) -> Outcome:
    """Infer one schema from all records of TFRecord files.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. For each
    feature, shows its type, shape and content, its range or distinct values, and how many records
    have it.

    Exit code 3 means that the schema is incomplete because of damaged records, shards of another
    kind, or a feature that TFDS has no type for.
    """
    form, proto, types = words.pop("emit"), words.pop("proto"), words.pop("types")
    if types and form != "tfds":
        raise UsageError("--type requires --emit tfds")
    if proto is not None:
        if form != "table" or words["sample"] is not None:
            other = "--sample" if form == "table" else "--emit"
            raise UsageError(f"--proto and {other} can't be used together")
        return _show_messages(shards, proto, as_json)
    if as_json and form != "table":
        raise UsageError(
            f"--json and --emit {form} can't be used together",
            hint="use --emit json alone to print a schema as JSON",
        )
    from tfrtool.examples.feature_text import python_source
    from tfrtool.examples.tfds_features import tfds_features
    from tfrtool.inspection.schema.shard_schema import infer_schema

    sources = resolve_sources(shards)
    if form == "tfds" and (content := _declared_content(sources, types)) is not None:
        emit(json.dumps(content, indent=2))
        return Outcome.FINE
    with Bars() as bars:
        inferred = infer_schema(sources, on_progress=bars, **words)
    for loss in inferred.losses:
        warn(loss_text(loss))
    outcome = Outcome.DAMAGE if inferred.losses or inferred.skipped else Outcome.FINE
    if form == "table":
        emit(inferred.to_json() if as_json else _page(inferred))
        return outcome
    notes = _notes(inferred)
    for text in notes:
        warn(text)
    if form == "json":
        emit(json.dumps(inferred.schema.to_json(), indent=2))
    elif form in ("schema", "pbtxt"):
        from tfrtool.inspection.schema.data_schema import schema_text

        content, unnamed = inferred.requirements()
        for name in unnamed:
            warn(f"skipped feature {name_text(name)}: its name is not UTF-8")
            outcome = Outcome.DAMAGE
        emit(schema_text(content, form))
    elif form == "python":
        counts = human_count(inferred.records, "record"), human_count(inferred.shards, "shard")
        lines = [f"Inferred from {' of '.join(counts)} by tfrtool inspect schema."]
        lines += [f"{text}.".capitalize() for text in notes]
        lines += map(loss_text, inferred.losses)
        emit(python_source(inferred.features, inferred.records, notes=lines))
    else:
        described = tfds_features(inferred.features, inferred.records, labels=not inferred.sampled)
        for name, reason in described.skipped.items():
            warn(f"skipped feature {name!r}: {reason}")
            outcome = Outcome.DAMAGE
        if not described.content["featuresDict"]["features"]:
            raise ShardError("no feature has a type that TFDS supports")
        emit(json.dumps(described.content, indent=2))
    return outcome


def _declared_content(
    sources: "Sequence[AnyPath | Stream]", types: Mapping[str, str] | None
) -> dict[str, Any] | None:
    """Return what features.json says, if there is one and records are what it says.

    Types, or those that another program's metadata has, come before it. `UsageError` if they
    describe something that TFDS doesn't have.
    """
    from tfrtool.examples.tfds_metadata import FEATURES
    from tfrtool.features.metadata_types import has_metadata_types
    from tfrtool.records.stream import Stream

    shards = [source for source in sources if not isinstance(source, Stream)]
    folders = {shard.parent for shard in shards}
    is_declared = folders and all((folder / FEATURES).exists() for folder in folders)
    if types and len(shards) < len(sources):
        raise UsageError("can't read standard input, because --type needs two passes")
    if not (is_declared or types or any(map(has_metadata_types, shards[:1]))):
        return None
    from tfrtool.examples.fields import leaves_of
    from tfrtool.features.tfds_tree import tfds_of_tree, tfds_stored
    from tfrtool.inspection.rows.batches import all_features

    try:
        found = all_features(shards, types=types)
    except SchemaError as error:
        if types:
            raise
        warn(f"features are inferred: {FEATURES} describes other records: {error.what}")
        return None
    if found.is_sequence or (types and found.root is None):
        raise UsageError("--emit tfds with --type requires tf.train.Examples")
    for text in found.all_notes:
        note(text)
    for leaf in leaves_of(found.root) if found.root is not None else ():
        if tfds_stored(leaf.values) is not leaf.values:
            note(f"feature {leaf.path!r} is not {leaf.values} there: TFDS has no such type")
    return None if found.root is None else tfds_of_tree(found.root)


def _show_messages(shards: tuple[str, ...], proto: str, as_json: bool) -> Outcome:
    """Print the fields of the messages in shards."""
    from tfrtool.examples.arrow.messages import MessageColumns
    from tfrtool.inspection.schema.message_schema import message_schema

    damage, columns = Damage("skip"), MessageColumns.read(proto)
    found = message_schema(resolve_sources(shards), columns, damage)
    rows = [(name_text(name), kind, f"{count:,}") for name, kind, count in found.fields]
    page: Page = [
        Heading(f"{human_count(found.records, 'record')}, {found.message}"),
        Table(head=("field", "type", "present"), rows=rows),
    ]
    emit(found.to_json() if as_json else page)
    if (unknown := columns.unknown_note(found.unknown_bytes)) is not None:
        note(unknown)
    return damage.outcome()


def _page(inferred: "InferredSchema") -> Page:
    """Return what ``inspect schema --emit table`` shows."""
    shards = human_count(inferred.shards, "shard")
    records = human_count(inferred.records, "record")
    page: list[str | Table] = [Heading(f"{records} in {shards}, {inferred.payload.title}")]
    if inferred.features:
        page.append(feature_table(inferred.features, inferred.records))
    notes = [*_feature_notes(inferred), *_notes(inferred)]
    if notes:
        page += [Heading("notes"), *(Prose(note, "- ") for note in notes)]
    return page


def _notes(inferred: "InferredSchema") -> list[str]:
    """Return why others than the records that were looked at may not fit, a clause each."""
    notes = []
    if inferred.sampled:
        count = human_count(inferred.records, "record")
        notes.append(
            f"based on a sample of {count} from the start of the shards; others may differ"
        )
    if inferred.skipped:
        count = human_count(inferred.skipped, "feature occurrence")
        notes.append(f"too many feature names; skipped {count}")
    return notes


def _feature_notes(inferred: "InferredSchema") -> Iterator[str]:
    for feature in inferred.features:
        parts = [conflict_text(feature)]
        if feature.duplicates:
            count = human_count(feature.duplicates, "record")
            parts.append(f"repeated in {count}, where the last value is used")
        if text := "; ".join(filter(None, parts)):
            yield f"{name_text(feature.name)}: {text}"
    unset = [f"{name_text(item.name)} {item.unset:,}" for item in inferred.features if item.unset]
    if unset:
        yield f"present without a value, treated as missing: {', '.join(unset)}"
