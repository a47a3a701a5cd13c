"""Schemas and records on which TFDV's anomalies were recorded."""

from __future__ import annotations

from typing import Any

__all__ = ["CASES", "Record"]

Record = dict[str, list[Any]]

LABEL = """feature { name: "n" type: INT presence { min_fraction: 1 min_count: 1 }
  value_count { min: 1 max: 1 } int_domain { min: 0 max: 9 } }"""
COLOR = """feature { name: "color" type: BYTES domain: "colors" presence { min_count: 1 }
  value_count { min: 1 max: 1 } }
string_domain { name: "colors" value: "red" value: "blue" }"""
SCORE = """feature { name: "x" type: FLOAT float_domain { min: 0 max: 1 disallow_nan: true
  disallow_inf: true } presence { min_fraction: 0.5 } }"""
BOX = """feature { name: "box" type: FLOAT presence { min_fraction: 1 }
  shape { dim { size: 4 } } }"""
FEW = """feature { name: "tags" type: BYTES value_count { min: 1 max: 2 }
  presence { min_count: 3 } }"""
MASS = """feature { name: "color" type: BYTES string_domain { value: "red" }
  distribution_constraints { min_domain_mass: 0.5 } }"""
OLD = (
    """feature { name: "old" type: INT lifecycle_stage: DEPRECATED presence { min_fraction: 1 } }"""
)
FLAG = """feature { name: "flag" type: INT bool_domain {} }"""


def ints(*values: int) -> list[Record]:
    """Return records of one number."""
    return [{"n": [value]} for value in values]


CASES: dict[str, tuple[str, list[Record]]] = {
    "all fits": (LABEL, ints(0, 9, 4)),
    "too large": (LABEL, ints(0, 10, 12)),
    "too small": (LABEL, ints(-1, 3)),
    "both ends": (LABEL, ints(-1, 3, 11)),
    "missing in one": (LABEL, [*ints(1, 2), {}]),
    "missing in all": (LABEL, [{"color": [b"red"]}] * 2),
    "empty list": (LABEL, [*ints(1), {"n": []}]),
    "too many values": (LABEL, [{"n": [1, 2]}, {"n": [3]}]),
    "float for int": (LABEL, [{"n": [1.5]}, {"n": [2.0]}]),
    "string for int": (LABEL, [{"n": [b"seven"]}]),
    "new feature": (LABEL, [{"n": [1], "extra": [b"a"]}]),
    "new category": (COLOR, [{"color": [b"red"]}, {"color": [b"green"]}]),
    "categories fit": (COLOR, [{"color": [b"red"]}, {}]),
    "no color at all": (COLOR, [{}, {}]),
    "int for string": (COLOR, [{"color": [1]}]),
    "score fits": (SCORE, [{"x": [0.5]}, {}]),
    "score too rare": (SCORE, [{"x": [0.5]}, {}, {}]),
    "score too large": (SCORE, [{"x": [1.5]}, {"x": [0.5]}]),
    "score too small": (SCORE, [{"x": [-0.5]}, {"x": [0.5]}]),
    "score is not a number": (SCORE, [{"x": [float("nan")]}, {"x": [0.5]}]),
    "score is infinite": (SCORE, [{"x": [float("inf")]}, {"x": [0.5]}]),
    "int for float": (SCORE, [{"x": [1]}]),
    "box fits": (BOX, [{"box": [0.0, 0.0, 1.0, 1.0]}]),
    "box too short": (BOX, [{"box": [0.0, 0.0, 1.0]}, {"box": [0.0, 0.0, 1.0, 1.0]}]),
    "tags fit": (FEW, [{"tags": [b"a"]}, {"tags": [b"a", b"b"]}, {"tags": [b"c"]}]),
    "tags in too few": (FEW, [{"tags": [b"a"]}, {}]),
    "tags too many": (FEW, [{"tags": [b"a"] * 3}, {"tags": [b"a"]}, {"tags": [b"a"]}]),
    "enough of the domain": (MASS, [{"color": [b"red"]}, {"color": [b"green"]}]),
    "too little of the domain": (MASS, [{"color": [b"red"]}, *[{"color": [b"green"]}] * 2]),
    "nothing required": (MASS, [{"n": [1]}]),
    "no records": (LABEL, []),
    "a deprecated feature": (OLD, [{"old": [1]}, {}]),
    "a flag": (FLAG, [{"flag": [0]}, {"flag": [1]}]),
    "a flag of 2": (FLAG, [{"flag": [2]}, {"flag": [1]}]),
}
