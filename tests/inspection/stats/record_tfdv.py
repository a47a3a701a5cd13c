"""Records TFDV's figures in tfdv.json; runs where it is installed, with `tfdv_data` beside it.

It needs Python 3.10 and its own environment: tensorflow-data-validation 1.16.1, dill below 0.3.9.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfdv_data import records  # type: ignore[import-not-found]


def main() -> None:
    """Write tfdv.json beside this file."""
    import pyarrow as pa
    import tensorflow_data_validation as tfdv  # type: ignore[import-not-found]
    from tensorflow_data_validation.statistics import (  # type: ignore[import-not-found]
        stats_impl,
        stats_options,
    )

    types = {float: pa.float32(), int: pa.int64(), bytes: pa.large_binary()}
    sides = []
    for which in (0, 1):
        rows = records(which)
        names = sorted({name for row in rows for name in row})
        columns = []
        for name in names:
            first = next(row[name][0] for row in rows if row.get(name))
            kind = pa.large_list(types[type(first)])
            columns.append(pa.array([row.get(name) for row in rows], kind))
        batch = pa.record_batch(columns, names)
        sides.append(stats_impl.generate_statistics_in_memory(batch, stats_options.StatsOptions()))
    data = {
        "version": tfdv.__version__,
        "features": [_features(side) for side in sides],
        "distances": _distances(tfdv, *sides),
        "divergences": [_divergence(tfdv, *pair) for pair in HISTOGRAMS],
    }
    path = Path(__file__).with_name("tfdv.json")
    path.write_text(json.dumps(data, indent=1) + "\n")


HISTOGRAMS: list[list[dict[str, list[float]]]] = [
    [{"edges": [0, 1, 2, 3], "counts": [1, 2, 3]}, {"edges": [0, 1, 2, 3], "counts": [3, 2, 1]}],
    [{"edges": [0, 2, 4], "counts": [10, 30]}, {"edges": [1, 1.5, 6], "counts": [5, 5]}],
    [{"edges": [0, 1, 2], "counts": [7, 0]}, {"edges": [5, 6, 9], "counts": [1, 4]}],
    [{"edges": [3, 3], "counts": [9]}, {"edges": [3, 3], "counts": [4]}],
    [{"edges": [3, 3], "counts": [9]}, {"edges": [2, 4], "counts": [4]}],
    [{"edges": [-1, 0.5, 7], "counts": [9, 1]}, {"edges": [-3, 0.25, 8], "counts": [2, 6]}],
]
"""Histograms whose divergence TFDV computes as they are, whatever it makes of data."""


def _features(side: Any) -> dict[str, Any]:
    found = {}
    for feature in side.datasets[0].features:
        name = feature.path.step[0]
        held = feature.num_stats if feature.HasField("num_stats") else feature.string_stats
        common = held.common_stats
        data: dict[str, Any] = {
            "present": common.num_non_missing,
            "missing": common.num_missing,
            "lengths": [common.min_num_values, common.max_num_values, common.avg_num_values],
            "values": common.tot_num_values,
        }
        if feature.HasField("num_stats"):
            keys = ("mean", "std_dev", "min", "max", "median", "num_zeros")
            data |= {key: getattr(held, key) for key in keys}
            data["nan"] = held.histograms[0].num_nan
            buckets = held.histograms[0].buckets
            data["edges"] = [buckets[0].low_value, *(one.high_value for one in buckets)]
            data["counts"] = [one.sample_count for one in buckets]
        else:
            data |= {"unique": held.unique, "avg_length": held.avg_length}
            data["top"] = [[one.value, one.frequency] for one in held.top_values]
        found[name] = data
    return found


def _measure(tfdv: Any, some: Any, others: Any, thresholds: dict[str, str]) -> dict[str, Any]:
    schema = tfdv.infer_schema(some)
    for feature in schema.feature:
        feature.ClearField("drift_comparator")
        kind = thresholds.get(feature.name)
        if kind is not None:
            getattr(feature.drift_comparator, kind).threshold = 0.0
    found = tfdv.validate_statistics(some, schema, previous_statistics=others)
    return {
        info.path.step[0]: info.drift_measurements[0].value
        for info in found.drift_skew_info
        if info.drift_measurements
    }


def _distances(tfdv: Any, some: Any, others: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("steps", "seldom", "list", "wave"), "jensen_shannon_divergence")
    return _measure(tfdv, some, others, numbers | {"word": "infinity_norm"})


def _divergence(tfdv: Any, *pair: dict[str, list[float]]) -> dict[str, Any]:
    import pyarrow as pa

    sides = []
    for one in pair:
        column = pa.array([[0.0]] * 10, pa.large_list(pa.float32()))
        rows = pa.record_batch([column], ["x"])
        from tensorflow_data_validation.statistics import stats_impl, stats_options

        side = stats_impl.generate_statistics_in_memory(rows, stats_options.StatsOptions())
        for histogram in side.datasets[0].features[0].num_stats.histograms:
            del histogram.buckets[:]
            spans = zip(one["edges"][:-1], one["edges"][1:], one["counts"], strict=True)
            for low, high, count in spans:
                histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
        sides.append(side)
    some, others = sides
    found = _measure(tfdv, some, others, {"x": "jensen_shannon_divergence"})
    return {"histograms": pair, "divergence": found["x"]}


if __name__ == "__main__":
    main()
