"""What pages show of a whole table: counts, histograms, examples, unusual and similar images."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tfrtool.inspection.table.record_query import MOST_BITS, ORDER, ROW, RecordQuery, Row, query_of
from tfrtool.inspection.table.record_table import RecordTable

EACH, MOST = 6, 12
"""Examples of a class; images of any other list."""

CLASSES, GROUPS, SHARDS = 40, 20, 60
_BINS, _CELLS = 24, 240

_CROWD = 200
"""Hashes with the same quarter that are compared; more have a common look, such as black."""

_UNUSUAL = {
    "smallest": ("w * h", "w * h < middle", "w::INT || ' x ' || h::INT"),
    "largest": ("-w * h", "w * h > middle", "w::INT || ' x ' || h::INT"),
    "widest": ("-w / h", "w / h > 1.5", "w::INT || ' x ' || h::INT"),
    "tallest": ("w / h", "h / w > 1.5", "w::INT || ' x ' || h::INT"),
    "nearly black": ("b", "b < 0.1", "'brightness ' || round(b, 2)"),
    "nearly white": ("-b", "b > 0.9", "'brightness ' || round(b, 2)"),
    "least detail": ("e", "e < 4", "round(e, 1) || ' bits'"),
}
"""Lists of unusual images: what they are sorted by, a condition, and what is shown."""


@dataclass(slots=True)
class Gallery:
    """What pages show of a table.

    Attributes:
        shard_rows: number of rows by number of the shard.
        classes: by split ("" for none) and class, the number of records.
        strips: by number of the shard, the most frequent class of each of its parts.
        histograms: counts and edges of the measurements of images.
        examples: records of the most frequent classes; those of "" without classes.
        unusual: images by what is unusual.
        similar: the largest groups of similar images: number of images, and the first ones.
        similar_groups: number of all such groups.
        all_compared: whether all images were compared.
    """

    shard_rows: dict[int, int]
    classes: dict[str, dict[str, int]]
    strips: dict[int, list[str | None]] = field(default_factory=dict)
    histograms: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    examples: dict[str, list[Row]] = field(default_factory=dict)
    unusual: dict[str, list[Row]] = field(default_factory=dict)
    similar: list[tuple[int, list[Row]]] = field(default_factory=list)
    similar_groups: int = 0
    all_compared: bool = True


def describe_table(table: RecordTable) -> Gallery:
    """Return what pages show of a table."""
    query = query_of(table)
    classes: dict[str, dict[str, int]] = defaultdict(dict)
    for split, name, count in query.fetch(
        "SELECT split, class, count(*) FROM (SELECT coalesce(_split, '') AS split, "
        'unnest("#classes") AS class FROM records) GROUP BY ALL'
    ):
        classes[split][name] = count
    rows = query.fetch('SELECT "#shard", count(*) FROM records GROUP BY 1 ORDER BY 1')
    gallery = Gallery(dict(rows), dict(classes))
    if classes:
        _add_strips(query, gallery)
    if query.has_images:
        _add_histograms(query, gallery)
        _add_examples(query, gallery)
        _add_similar(query, gallery)
        images = (
            'WITH one AS (SELECT *, "#width"::DOUBLE AS w, "#height"::DOUBLE AS h, '
            '"#brightness" AS b, "#entropy" AS e FROM records WHERE "#width" > 0), '
            "half AS (SELECT median(w * h) AS middle FROM one)"
        )
        for name, (key, condition, note) in _UNUSUAL.items():
            found = query.fetch(
                f"{images} SELECT {ROW}, {note} FROM one, half WHERE {condition} "
                f"ORDER BY {key}, {ORDER} LIMIT {MOST}"
            )
            if found:
                gallery.unusual[name] = [Row(*values) for values in found]
    return gallery


def _add_strips(query: RecordQuery, gallery: Gallery) -> None:
    for shard, cell, name in query.fetch(
        'SELECT "#shard", _record * least(n, '
        f'{_CELLS}) // n AS cell, mode("#classes"[1]) FROM (SELECT *, 1 + max(_record) OVER '
        f'(PARTITION BY "#shard") AS n FROM records WHERE "#shard" < {SHARDS}) '
        "GROUP BY ALL ORDER BY ALL"
    ):
        cells = gallery.strips.setdefault(shard, [])
        cells += [None] * (cell - len(cells)) + [name]


def _add_histograms(query: RecordQuery, gallery: Gallery) -> None:
    for name in ("width", "height", "brightness", "entropy"):
        column = f'"#{name}"'
        ((low, high),) = query.fetch(f"SELECT min({column}), max({column}) FROM records")
        if low is None:
            continue
        counts, step = [0] * _BINS, (high - low) / _BINS or 1
        for bin_index, count in query.fetch(
            f"SELECT least(floor(({column} - {low}) / {step}), {_BINS - 1})::INT, count(*) "
            f"FROM records WHERE {column} IS NOT NULL GROUP BY 1"
        ):
            counts[bin_index] = count
        gallery.histograms[name] = counts, [*(low + step * n for n in range(_BINS)), high]


def _add_examples(query: RecordQuery, gallery: Gallery) -> None:
    """Add records of each class, evenly spread from the first to the last."""
    classes, each = ('unnest("#classes")', EACH) if gallery.classes else ("''", 2 * MOST)
    largest = (
        f"WITH one AS (SELECT *, {classes} AS class FROM records), largest AS (SELECT class "
        f"FROM one GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {CLASSES})"
    )
    parts = (
        f"SELECT *, ntile({each}) OVER (PARTITION BY class ORDER BY {ORDER}) AS part FROM one "
        "SEMI JOIN largest USING (class)"
    )
    for name, *values in query.fetch(
        f"{largest} SELECT class, {ROW} FROM ({parts}) QUALIFY row_number() OVER "
        f"(PARTITION BY class, part ORDER BY {ORDER}) = 1 ORDER BY class, {ORDER}"
    ):
        gallery.examples.setdefault(name, []).append(Row(*values))


def _add_similar(query: RecordQuery, gallery: Gallery) -> None:
    """Add groups of images whose hashes differ in a few bits, the largest first.

    Hashes are compared if one of their quarters is the same. A group is around one image that is
    similar to all others of it, because a chain of similar images leads anywhere.
    """
    hashes = 'SELECT "#hash" AS h, count(*) FROM records WHERE "#hash" IS NOT NULL GROUP BY 1'
    counts = dict(query.fetch(f"{hashes} ORDER BY 1"))
    crowds = (
        f"WITH parts AS (SELECT h, n, (h >> (16 * n)) & 65535 AS part FROM ({hashes}), "
        "range(4) AS r(n)), crowds AS (SELECT *, count(*) OVER (PARTITION BY n, part) AS crowd "
        "FROM parts)"
    )
    alike: dict[int, set[int]] = {one: set() for one, count in counts.items() if count > 1}
    for image_hash, other in query.fetch(
        f"{crowds} SELECT DISTINCT a.h, b.h FROM crowds AS a JOIN crowds AS b USING (n, part) "
        f"WHERE a.crowd <= {_CROWD} AND a.h <> b.h AND bit_count(xor(a.h, b.h)) <= {MOST_BITS}"
    ):
        alike.setdefault(image_hash, set()).add(other)
    gallery.all_compared = not query.fetch(f"{crowds} FROM crowds WHERE crowd > {_CROWD} LIMIT 1")
    groups: list[tuple[int, list[int]]] = []
    taken: set[int] = set()
    for centre in sorted(alike, key=lambda image_hash: (-len(alike[image_hash]), image_hash)):
        if centre not in taken:
            members = [one for one in (centre, *sorted(alike[centre])) if one not in taken]
            groups.append((sum(counts[one] for one in members), members))
            taken.update(members)
    groups = sorted((one for one in groups if one[0] > 1), key=lambda group: -group[0])
    gallery.similar_groups = len(groups)
    for count, members in groups[:GROUPS]:
        listed = ", ".join(map(str, members))
        found = query.fetch(
            f'SELECT {ROW} FROM records WHERE "#hash" IN ({listed}) ORDER BY {ORDER} LIMIT {MOST}'
        )
        gallery.similar.append((count, [Row(*values) for values in found]))


def sorted_classes(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return classes in the order of their numbers: known names, numbers, then other names."""
    order = {name: number for number, name in enumerate(known)}

    def key(name: str) -> tuple[int, int, str]:
        number = order.get(name, int(name) if name.isdecimal() else 0)
        return (name not in order) + (not name.isdecimal() and name not in order), number, name

    return sorted(set(names), key=key)
