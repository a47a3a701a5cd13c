"""TensorBoard's events as columns."""

import json
from array import array
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tfrtool.examples.arrow.messages import MessageColumns, MessageField
from tfrtool.examples.example import PayloadKind, classify_payload
from tfrtool.inspection.rows.payload_json import PayloadJson


@dataclass(frozen=True, slots=True)
class EventColumns(MessageColumns):
    """The time and step of an event, the tag and number of what it logs, and all of it as JSON.

    Attributes:
        is_list: whether tags and numbers are lists, because some events log several.
    """

    is_list: bool = False

    @property
    def all_fields(self) -> dict[str, MessageField]:
        """The fields by their names."""
        kinds = {"tag": pa.string(), "value": pa.float64()}
        if self.is_list:
            kinds = {name: pa.list_(kind) for name, kind in kinds.items()}
        kinds = {"wall_time": pa.float64(), "step": pa.int64(), **kinds, "event": pa.string()}
        return {name: MessageField(kind) for name, kind in kinds.items()}

    def row(self, payload: bytes) -> dict[str, Any]:
        """Return the values of a payload; `ValueError` if it is not an event."""
        if classify_payload(payload) is not PayloadKind.EVENT:
            raise ValueError(f"payload ({len(payload)} bytes) is not a TensorBoard event")
        event = PayloadJson().describe(payload)["event"]
        summary = event.get("summary")
        logged = summary.get("value", []) if isinstance(summary, dict) else []
        tags, numbers = [one.get("tag") for one in logged], [_number(one) for one in logged]
        row = {"wall_time": float(event["wall_time"]), "step": event.get("step", 0)}
        if self.is_list:
            row |= {"tag": tags, "value": numbers}
        elif logged:
            row |= {"tag": tags[0], "value": numbers[0]}
        row["event"] = json.dumps(event)
        return {name: row.get(name) for name in self.chosen_fields}


def _number(value: dict[str, Any]) -> float | None:
    """Return the number that a value of a summary is, if it is a single one."""
    tensor, numbers, is_short = value.get("tensor"), [value.get("simple_value")], True
    if isinstance(tensor, dict) and not tensor["shape"]:
        numbers, is_short = tensor["values"], tensor["dtype"] == "float32"
    number = numbers[0] if len(numbers) == 1 else None
    if not isinstance(number, int | float) and number not in ("NaN", "Infinity", "-Infinity"):
        return None
    # JSON has the shortest decimals of a float32.
    return array("f", [float(number)])[0] if is_short else float(number)
