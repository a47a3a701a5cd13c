"""What verification found as plain JSON values, with the keys that the command line promises."""

from __future__ import annotations

from typing import Any

from tfrtool.errors import printable
from tfrtool.inspection.summary.summary_json import fault_json
from tfrtool.inspection.verify.dataset_check import DatasetFault
from tfrtool.inspection.verify.duplicates import DuplicateGroup
from tfrtool.inspection.verify.verify import VerifyReport
from tfrtool.inspection.verify.verify_shard import ShardVerdict

__all__ = ["report_json", "verdict_json"]


def verdict_json(verdict: ShardVerdict) -> dict[str, Any]:
    """Return the object that ``verify --json`` prints for a shard."""
    shard, images = verdict.shard, verdict.images
    data: dict[str, Any] = {
        "path": printable(str(verdict.path)),
        "bytes": None if shard is None else shard.bytes,
        "compression": None if shard is None else shard.compression.value,
        "records": verdict.records,
        "payload": verdict.payload.value,
        "payload_bytes": verdict.payload_bytes,
        "faults": [
            {**fault_json(fault), "cause": cause}
            for fault, cause in zip(verdict.faults, verdict.causes, strict=True)
        ],
        "fault_count": verdict.n_faults,
        "notes": list(map(printable, verdict.conflicts)),
        "error": verdict.error,
    }
    if images is not None:
        data["images"] = {
            "feature": None if images.roles is None else images.roles.image,
            "features": {printable(name): count for name, count in images.features.items()},
            "encoded": images.encoded,
            "pixels": images.pixels,
            "unknown": images.doubtful,
            "absent": images.absent,
        }
    return data


def report_json(report: VerifyReport) -> dict[str, Any]:
    """Return the last object of ``verify --json``: what concerns all shards together."""
    duplicates = report.duplicates
    data: dict[str, Any] = {
        "shards": len(report.shards),
        "records": report.records,
        "bytes": report.bytes,
        "sound": report.is_sound,
        "faults": [_dataset_fault_json(fault) for fault in report.faults],
        "fault_count": report.n_faults,
        "notes": list(map(printable, report.notes)),
    }
    if duplicates is not None:
        data["duplicates"] = [_group_json(group) for group in duplicates.groups]
        data["duplicate_counts"] = {
            "across_splits": duplicates.across_splits,
            "across_labels": duplicates.across_labels,
            "within": duplicates.within,
        }
    return data


def _dataset_fault_json(fault: DatasetFault) -> dict[str, Any]:
    return {
        "kind": fault.kind.value,
        "offset": None,
        "record": None,
        "message": fault.message,
        "path": printable(str(fault.path)),
        "expected": fault.expected,
        "found": fault.found,
    }


def _group_json(group: DuplicateGroup) -> dict[str, Any]:
    return {
        "count": group.n_copies,
        "across_splits": group.across_splits,
        "across_labels": group.across_labels,
        "copies": [
            {
                "path": printable(str(copy.path)),
                "split": copy.split,
                "record": copy.record,
                "name": copy.name,
                "label": copy.label,
            }
            for copy in group.copies
        ],
    }
