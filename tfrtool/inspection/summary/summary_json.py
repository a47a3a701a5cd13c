"""Summaries as plain JSON values, with the keys that the command line promises."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfrtool.errors import printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import is_utf8
from tfrtool.examples.parsing import ParsedValue
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.inspection.summary.shard_summary import Sample, ShardSummary
from tfrtool.records.framing import Fault

if TYPE_CHECKING:
    # At run time they would bring processes and compression, which cost 20 ms.
    from tfrtool.inspection.schema.shard_schema import InferredSchema
    from tfrtool.records.repair import RepairReport

__all__ = [
    "fault_json",
    "repair_json",
    "schema_json",
    "shortest_float",
    "summary_json",
    "value_json",
]


def summary_json(summary: ShardSummary, *, raw: bool = False) -> dict[str, Any]:
    """Return the object that ``inspect shard --json`` prints for a shard.

    Args:
        summary: what the shard holds.
        raw: whether each record of the sample comes with its serialized bytes and its CRCs.
    """
    return {
        "path": printable(str(summary.shard.path)),
        "bytes": summary.shard.bytes,
        "compression": summary.shard.compression.value,
        "records": summary.records,
        "payload": summary.payload.value,
        "payload_bytes": summary.payload_bytes,
        "features": [_feature_json(feature) for feature in summary.features],
        "faults": [fault_json(fault) for fault in summary.faults],
        "hidden_by_default": [
            {"name": name, "records": list(indices)} for name, indices in summary.hidden.items()
        ],
        "sample": [_sample_json(sample, raw) for sample in summary.sample],
    }


def fault_json(fault: Fault) -> dict[str, Any]:
    """Return a fault as every command's ``--json`` prints it."""
    return {
        "kind": fault.kind.value,
        "offset": fault.offset,
        "record": fault.record,
        "message": fault.message,
    }


def repair_json(report: RepairReport) -> dict[str, Any]:
    """Return the object that ``repair --json`` prints."""
    return {
        "path": printable(str(report.shard)),
        "out": printable(str(report.out)),
        "compression": report.compression.value,
        "records": report.records,
        "lost": [{"offset": part.offset, "bytes": part.bytes} for part in report.lost],
        "faults": [fault_json(fault) for fault in report.faults],
    }


def _feature_json(feature: FeatureStatistics) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": feature.name,
        "dtype": None if feature.dtype is None else feature.dtype.value,
        "present": feature.present,
        "min_length": feature.min_length,
        "max_length": feature.max_length,
        "content": feature.described_content,
        "unset": feature.unset,
        "dtypes": {dtype.value: count for dtype, count in feature.dtypes.items()},
        "duplicates": feature.duplicates,
    }
    if feature.is_list:
        data |= {"list": True, "min_step": feature.min_step, "max_step": feature.max_step}
    return data


def schema_json(inferred: InferredSchema) -> dict[str, Any]:
    """Return the object that ``inspect schema --json`` prints."""
    return {
        "shards": inferred.shards,
        "records": inferred.records,
        "payload": inferred.payload.value,
        "sampled": inferred.sampled,
        "features": [_feature_json(item) | _values_json(item) for item in inferred.features],
        "duplicates": inferred.duplicates,
        "left_out": inferred.left_out,
        "losses": [
            {
                "path": printable(str(loss.path)),
                "payload": loss.payload.value,
                "count": loss.count,
                "faults": [fault_json(fault) for fault in loss.faults],
            }
            for loss in inferred.losses
        ],
    }


def _values_json(feature: FeatureStatistics) -> dict[str, Any]:
    found = feature.range
    distinct = found.distinct
    data: dict[str, Any] = {
        "min": None if found.minimum is None else value_json(found.minimum),
        "max": None if found.maximum is None else value_json(found.maximum),
        "nan": found.nan,
        "infinite": found.infinite,
        "distinct": None if distinct is None else len(distinct),
        "values": None
        if distinct is None
        else [{"value": value_json(v), "count": distinct[v]} for v in sorted(distinct)],
    }
    if feature.conflict:
        data["first"] = {
            dtype.value: {"path": printable(kind.first[0]), "record": kind.first[1]}
            for dtype, kind in feature.values.items()
        }
    if not is_utf8(feature.key):
        data["name_hex"] = feature.key.hex()
    return data


def _sample_json(sample: Sample, raw: bool) -> dict[str, Any]:
    record = sample.record
    data: dict[str, Any] = {
        "record": record.index,
        "offset": record.offset,
        "length": len(record.payload),
        "features": None,
    }
    if sample.parsed is None:
        data["payload"] = value_json(record.payload)
    else:
        data["features"] = {name: value_json(v) for name, v in sample.parsed.values.items()}
        if sample.parsed.misfits:
            data["misfits"] = [str(misfit) for misfit in sample.parsed.misfits]
    if raw:
        data["raw"] = repr(record.payload)
        data["length_crc"] = f"{record.length_crc:08x}"
        data["payload_crc"] = f"{record.payload_crc:08x}"
    return data


def value_json(value: ParsedValue) -> Any:
    """Return a parsed value as JSON values.

    Bytes become an object that tells their number and content, and their text if they are text.
    Floats are the shortest decimals that give the same float32; those that JSON has no number
    for become "NaN", "Infinity" and "-Infinity".
    """
    if isinstance(value, bytes):
        data: dict[str, Any] = {"bytes": len(value), "content": describe_bytes(value)}
        text = decode_text(value)
        if text is not None:
            data["text"] = text
        return data
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return shortest_float(value)
    if isinstance(value, Sequence):
        return [value_json(item) for item in value]
    return value


def shortest_float(value: float) -> float:
    """Return the float with the fewest digits that is the same float32 as ``value``."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        return value
    # Nine significant digits tell all float32 values apart (IEEE 754, 5.12.2).
    for digits in range(6, 9):
        candidate = float(f"{value:.{digits}g}")
        try:
            if struct.pack("<f", candidate) == packed:
                return candidate
        except OverflowError:
            continue
    return float(f"{value:.9g}")
