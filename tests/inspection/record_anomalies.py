"""Records TFDV's anomalies in anomalies.json, by its own C++ code, with statistics made here.

Run ``python -m tests.inspection.record_anomalies WHEEL`` with the wheel of
tensorflow-data-validation 1.16.1 for this Python. TFDV itself isn't installed or imported.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import zipfile
from collections import Counter
from importlib import machinery, util
from pathlib import Path
from typing import Any

from tests.inspection.anomaly_cases import CASES, Record

EXTENSION = "tensorflow_data_validation/pywrap/tensorflow_data_validation_extension.so"


def main() -> None:
    """Write anomalies.json next to this file."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(sys.argv[1]) as wheel:
            wheel.extractall(folder)
        loader = machinery.ExtensionFileLoader(Path(EXTENSION).stem, str(Path(folder, EXTENSION)))
        spec = util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = util.module_from_spec(spec)
        loader.exec_module(module)
        found = {}
        for name, (schema, records) in CASES.items():
            parsed = text_format.Parse(schema, schema_pb2.Schema()).SerializeToString()
            answer = module.validation.ValidateFeatureStatistics(
                statistics(records).SerializeToString(), parsed, "", "", "", "", "", "", False
            )
            anomalies = anomalies_pb2.Anomalies.FromString(answer)
            kinds = anomalies_pb2.AnomalyInfo.Type
            found[name] = {
                feature: sorted({kinds.Name(reason.type) for reason in info.reason})
                for feature, info in sorted(anomalies.anomaly_info.items())
            }
    text = json.dumps(found, indent=1)
    Path(__file__).with_name("anomalies.json").write_text(text + "\n")


def statistics(records: list[Record]) -> Any:
    """Return the statistics of records that TFDV's validation reads."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    made = statistics_pb2.DatasetFeatureStatistics(num_examples=len(records))
    for name in sorted({name for record in records for name in record}):
        rows = [record[name] for record in records if name in record]
        values = [value for row in rows for value in row]
        feature = made.features.add()
        feature.path.step.append(name)
        kind = type(values[0]) if values else int
        types = {int: "INT", float: "FLOAT", bytes: "STRING"}
        feature.type = statistics_pb2.FeatureNameStatistics.Type.Value(types[kind])
        held = feature.string_stats if kind is bytes else feature.num_stats
        common = held.common_stats
        common.num_non_missing, common.num_missing = len(rows), len(records) - len(rows)
        common.min_num_values, common.max_num_values = (f(map(len, rows)) for f in (min, max))
        common.tot_num_values = len(values)
        common.avg_num_values = len(values) / len(rows)
        if kind is bytes:
            held.unique = len(set(values))
            for value, count in Counter(values).items():
                held.rank_histogram.buckets.add(label=value, sample_count=count)
        elif values:
            numbers = [value for value in values if not math.isnan(value)]
            held.min, held.max = (min(numbers), max(numbers)) if numbers else (0, 0)
            histogram = held.histograms.add(num_nan=len(values) - len(numbers))
            histogram.buckets.add(
                low_value=held.min, high_value=held.max, sample_count=len(numbers)
            )
    return made


if __name__ == "__main__":
    main()
