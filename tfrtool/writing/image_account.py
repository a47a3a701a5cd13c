"""The account of the images of a shard: every record, every image that is skipped or converted."""

import base64
import heapq
import json
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tfrtool.sources.items import Item
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.writing.image_records import Finding, RecordMaker


class FirstByKey:
    """The entries of images with the smallest keys, as many as a report lists, and their count."""

    def __init__(self) -> None:
        self.count = 0
        self._entries: list[tuple[str, Any]] = []

    def add(self, key: str, *entries: Any, more: int = 0) -> None:
        """Add entries of an image; and more that are only counted."""
        self.count += len(entries) + more
        self._entries += ((key, entry) for entry in entries)
        if len(self._entries) > 2 * MAX_LISTED:
            self._entries = self._smallest()

    def _smallest(self) -> list[tuple[str, Any]]:
        return heapq.nsmallest(MAX_LISTED, self._entries, key=lambda entry: entry[0])

    @property
    def kept(self) -> list[tuple[str, Any]]:
        """The entries with their keys, in the order of these."""
        return self._smallest()

    @property
    def more(self) -> int:
        """How many entries are counted but not kept."""
        return max(0, self.count - MAX_LISTED)

    def merge(self, other: "FirstByKey") -> None:
        """Add the entries of another list."""
        for key, entry in other._entries:
            self.add(key, entry)
        self.count += other.count - len(other._entries)

    def to_json(self) -> list[Any]:
        """Return what `from_json` takes."""
        return [self.count, self._smallest()]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "FirstByKey":
        """Return the list that `to_json` has described."""
        entries, (count, pairs) = cls(), data
        entries.count, entries._entries = count, [(key, entry) for key, entry in pairs]
        return entries


class ImageAccount:
    """What became of some images.

    Attributes:
        rejected: reasons, of those that are skipped.
        converted: formats and reasons, of those that are re-encoded where bytes would be kept.
        labels: how many records of each class, or objects.
        lost: how many objects belong to images that are skipped.
        digests: `Finding.digest` of each image, in order.
    """

    def __init__(self) -> None:
        self.rejected, self.converted = FirstByKey(), FirstByKey()
        self.labels = Counter[str]()
        self.lost = 0
        self.digests = array("Q")

    def add(self, item: Item, finding: Finding, maker: RecordMaker) -> None:
        """Account for an image."""
        self.digests.append(finding.digest)
        labels = maker.labels_of(item)
        if finding.problem is not None:
            self.rejected.add(item.key, finding.problem)
            self.lost += len(labels) if maker.features.has_objects else 0
            return
        self.labels.update(labels)
        if finding.conversion is not None:
            self.converted.add(item.key, (finding.format or "", finding.conversion))

    def merge(self, other: "ImageAccount") -> None:
        """Account for other images, but for their digests."""
        self.rejected.merge(other.rejected)
        self.converted.merge(other.converted)
        self.labels.update(other.labels)
        self.lost += other.lost

    def to_text(self) -> str:
        """Return what `from_text` takes, for a note of the shard."""
        data = {
            "rejected": self.rejected.to_json(),
            "converted": self.converted.to_json(),
            "labels": dict(self.labels),
            "lost": self.lost,
            "digests": base64.b64encode(self.digests.tobytes()).decode(),
        }
        return json.dumps(data)

    @classmethod
    def from_text(cls, text: str) -> "ImageAccount":
        """Return the account that `to_text` has described."""
        account, data = cls(), json.loads(text)
        account.rejected = FirstByKey.from_json(data["rejected"])
        account.converted = FirstByKey.from_json(data["converted"])
        account.labels.update(data["labels"])
        account.lost = data["lost"]
        account.digests.frombytes(base64.b64decode(data["digests"]))
        return account
