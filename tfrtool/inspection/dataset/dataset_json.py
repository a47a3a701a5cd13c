"""What a dataset holds as plain JSON values, with the keys that the command line promises."""

from __future__ import annotations

from typing import Any

from tfrtool.errors import printable
from tfrtool.inspection.dataset.dataset_summary import DatasetShard, DatasetSummary, SplitSummary
from tfrtool.inspection.dataset.shuffle import MixDistance, ShuffleQuality, describe_balance
from tfrtool.inspection.summary.summary_json import fault_json

__all__ = ["dataset_json"]

_DIGITS = 6
"""Digits after the point of what is estimated."""


def dataset_json(summary: DatasetSummary) -> dict[str, Any]:
    """Return the object that ``inspect dataset --json`` prints."""
    return {
        "dataset": printable(str(summary.directory)),
        "name": printable(summary.name),
        "version": summary.version,
        "described": summary.described,
        "payload": summary.payload.value,
        "label": summary.label,
        "label_candidates": list(summary.candidates),
        "distinct_labels": summary.distinct,
        "records": summary.records,
        "splits": {printable(split.name): _split_json(split) for split in summary.splits},
        "notes": list(summary.notes),
        "faults": [
            {"path": printable(str(located.path)), **fault_json(located.fault)}
            for located in summary.faults
        ],
        "more_faults": summary.more_faults,
    }


def _split_json(split: SplitSummary) -> dict[str, Any]:
    return {
        "records": split.records,
        "expected_records": split.expected,
        "bytes": split.bytes,
        "missing_shards": split.missing,
        "extra_shards": split.extra,
        "labels": dict(split.labels),
        "absent_labels": list(split.absent),
        "unlabelled": split.unlabelled,
        "balance": describe_balance(split.labels) if split.shuffle else None,
        **_mix_json(split.mix),
        **_shuffle_json(split.shuffle, split.longest_label),
        "shards": [_shard_json(shard) for shard in split.shards],
    }


def _shuffle_json(quality: ShuffleQuality | None, longest_label: str | None) -> dict[str, Any]:
    if quality is None:
        return {"shuffle": None}
    return {
        "shuffle": quality.verdict,
        "order": quality.order.value,
        "runs": quality.runs,
        "expected_runs": round(quality.expected_runs, _DIGITS),
        "runs_z": _rounded(quality.runs_z),
        "longest_run": quality.longest_run,
        "longest_run_label": longest_label,
        "expected_longest_run": round(quality.expected_longest_run, _DIGITS),
        "batch": quality.batch,
        "batch_spread": round(quality.batch_spread, _DIGITS),
        "batch_spread_noise": round(quality.batch_noise, _DIGITS),
        "shard_spread": _rounded(quality.shard_spread),
        "shard_spread_noise": round(quality.shard_noise, _DIGITS),
        "shuffle_buffer": quality.buffer,
        "interleaved_shuffle_buffer": quality.interleaved_buffer,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _shard_json(shard: DatasetShard) -> dict[str, Any]:
    return {
        "path": printable(str(shard.shard.path)),
        "records": shard.records,
        "expected_records": shard.expected,
        "bytes": shard.shard.bytes,
        "compression": shard.shard.compression.value,
        "labels": dict(shard.labels),
        "unlabelled": shard.unlabelled,
        **_mix_json(shard.mix),
    }


def _mix_json(mix: MixDistance | None) -> dict[str, Any]:
    if mix is None:
        return {"mix_distance": None}
    return {
        "mix_distance": round(mix.distance, _DIGITS),
        "mix_distance_by_chance": round(mix.chance, _DIGITS),
        "mix_distance_limit": round(mix.limit, _DIGITS),
    }
