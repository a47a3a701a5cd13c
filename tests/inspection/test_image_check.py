"""Every image of a shard is decoded."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import MakeShard
from tests.examples.strategies import int64, string
from tests.inspection.profiled import verify_shard
from tests.photos import image_bytes
from tfrtool.examples.example import Feature, encode_example
from tfrtool.inspection.verify.image_check import ImageFindings
from tfrtool.inspection.verify.verify import VerifyReport, verify

JPEG = image_bytes(size=(64, 48))
CUT = JPEG[: len(JPEG) * 7 // 10]


def example(**features: Feature) -> bytes:
    """Return an Example of these features."""
    return encode_example(features)


def findings(path: Path) -> ImageFindings:
    """Return what is found in the images of a shard."""
    images = verify_shard(path, images=True).images
    assert images is not None
    return images


def faults(report: VerifyReport) -> list[tuple[str, int | None, str]]:
    """Return the faults of all shards: kind, record, message."""
    return [
        (fault.kind.value, fault.record, fault.message)
        for shard in report.shards
        for fault in shard.faults
    ]


def test_images_that_decode(make_shard: MakeShard) -> None:
    """All formats that can be opened count as images, and none of these is broken."""
    formats = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
    path = make_shard([example(image=string(image_bytes(name))) for name in formats])
    found = findings(path)
    assert (found.encoded, found.pixels, found.doubtful, found.absent) == (6, 0, 0, 0)
    assert verify([str(path)], images=True, workers=1).is_sound


def test_cut_image_is_a_fault(make_shard: MakeShard) -> None:
    """The fault names feature, record and offset, and says why; without images it isn't seen."""
    path = make_shard([example(image=string(data)) for data in (JPEG, CUT, JPEG)])
    assert verify([str(path)]).is_sound
    verdict = verify_shard(path, images=True)
    (fault,) = verdict.faults
    assert (fault.kind.value, fault.record) == ("parse", 1)
    assert fault.offset == len(example(image=string(JPEG))) + 16
    assert "feature 'image'" in fault.message
    assert "truncated" in fault.message.lower()


def test_every_feature_that_holds_images_is_looked_at(make_shard: MakeShard) -> None:
    """A mask beside the image is decoded, too, and so is each of a list."""
    mask = image_bytes("PNG")
    cut = mask[: len(mask) // 2]
    payloads = [
        example(image=string(JPEG), mask=string(mask)),
        example(image=string(JPEG), mask=string(cut)),
        example(image=string(JPEG), mask=string(mask, cut)),
    ]
    found = faults(verify([str(make_shard(payloads))], images=True, workers=1))
    assert [record for _, record, _ in found] == [1, 2]
    assert all("'mask'" in message for _, _, message in found)


def test_what_is_no_image_among_images(make_shard: MakeShard) -> None:
    """Other bytes, and none, are faults where the feature holds images, in any shard of it."""
    values = (b"", b"error: timed out", b"\x00\xff\x01")
    make_shard([example(image=string(value)) for value in values], "a.tfrecord")
    path = make_shard([example(image=string(JPEG))], "b.tfrecord")
    report = verify([str(path.parent)], images=True, workers=1)
    assert [(kind, record) for kind, record, _ in faults(report)] == [
        ("parse", 0),
        ("parse", 1),
        ("parse", 2),
    ]
    messages = [message for _, _, message in faults(report)]
    assert "empty" in messages[0]
    assert "text" in messages[1]
    assert report.n_faults == 3
    assert all(fault.cause for shard in report.shards for fault in shard.faults)


def test_bare_pixels(make_shard: MakeShard) -> None:
    """Pixels have the size that their record says, with channels or without."""
    size = {"height": int64(4), "width": int64(5)}
    right = [
        example(image=string(b"\xff\x00\x80" * 20), channels=int64(3), **size),
        example(image_raw=string(b"\xff\x00\x80" * 20), **size),
    ]
    wrong = example(image=string(b"\xff\x00\x80" * 19), channels=int64(3), **size)
    for number, payload in enumerate(right):
        path = make_shard([payload], f"{number}.tfrecord")
        assert findings(path).pixels == 1
        assert verify([str(path)], images=True, workers=1).is_sound
    ((kind, record, message),) = faults(
        verify([str(make_shard([right[0], wrong]))], images=True, workers=1)
    )
    assert (kind, record) == ("parse", 1)
    assert "5 x 4 x 3 = 60 bytes of raw pixels, found 57" in message


def test_hostile_sizes(make_shard: MakeShard) -> None:
    """Sizes of zero, below zero, and beyond all memory are only numbers."""
    for value in (0, -1, 2**62):
        payload = example(
            image=string(b"\xff\x00"),
            height=int64(value),
            width=int64(value),
            channels=int64(value),
        )
        assert verify_shard(make_shard([payload]), images=True).records == 1


def test_records_without_an_image_are_counted(make_shard: MakeShard) -> None:
    """A record may lack what others have."""
    path = make_shard([example(image=string(JPEG)), example(label=int64(1))])
    assert findings(path).absent == 1


def test_pillow_bomb_is_a_fault(make_shard: MakeShard) -> None:
    """An image that claims more pixels than anybody has is told, and not decoded."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b"")
    ((_, record, message),) = faults(
        verify([str(make_shard([example(image=string(bomb))]))], images=True, workers=1)
    )
    assert record == 0
    assert "pixels" in message


def test_reports_of_the_same_images_are_equal(make_shard: MakeShard) -> None:
    """Reports are compared by what they say, and by the payloads."""
    other = image_bytes(size=(64, 48), tint=7)
    paths = [make_shard([example(image=string(data))]) for data in (JPEG, JPEG)]
    first, again = (verify([str(path)], images=True, workers=1) for path in paths)
    assert (first, hash(first.shards), repr(first)) == (again, hash(again.shards), repr(again))
    changed = make_shard([example(image=string(other.ljust(len(JPEG), b"\0")[: len(JPEG)]))])
    assert verify([str(changed)], images=True, workers=1) != first
