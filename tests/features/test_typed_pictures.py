"""Arrays and sound as pictures and files: inspect images, extract and the viewer's table."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import tfrtool
from tests.records.strategies import shard_of

Run = Callable[..., tuple[int, str, str]]
PIXELS = np.random.default_rng(0).integers(0, 256, (10, 12, 6), np.uint8)
RGB = PIXELS[:, :, :3]
SINE = np.sin(np.linspace(0, 9, 800)).astype(np.float32)


def write(path: Path, *records: dict[str, Any]) -> Path:
    """Write a shard of records."""
    path.write_bytes(shard_of([tfrtool.encode_example(record) for record in records]))
    return path


def encoded_wav() -> bytes:
    """Return a WAV file."""
    output = io.BytesIO()
    with wave.open(output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\1\2" * 50)
    return output.getvalue()


WAV = encoded_wav()


def tiles(sheet: Path) -> Image.Image:
    """Return a sheet's pixels."""
    with Image.open(sheet) as image:
        return image.convert("L")


def test_channels_are_drawn_beside_each_other(tmp_path: Path, run: Run) -> None:
    """An image of six channels has a grey picture for each, and its size is shown."""
    record = {"image/encoded": PIXELS.tobytes(), "image/shape": [*PIXELS.shape]}
    shard = write(tmp_path / "a.tfrecord", record)
    single = write(tmp_path / "b.tfrecord", {"image": PIXELS[:, :, 5].tobytes(), "shape": [10, 12]})
    typed = write(tmp_path / "c.tfrecord", {"x": PIXELS.tobytes()})
    words = ((shard,), (typed, "--type", "x:raw:uint8[10,12,6]"))
    sheets = []
    for number, shards in enumerate(words):
        out = tmp_path / f"{number}.png"
        assert run("inspect", "images", *shards, "--out", out)[:1] == (0,)
        sheets.append(tiles(out).crop((20, 50, 150, 180)).tobytes())
    assert sheets[0] == sheets[1]
    code, verdict, _ = run("verify", "--images", shard)
    assert (code, "neither images" in verdict) == (0, False)
    assert run("inspect", "images", single, "--out", tmp_path / "single.png")[0] == 0
    picture = tfrtool.contact_sheet(shard, tmp_path / "d.png", thumb=64)
    assert (len(picture.broken), picture.guessed) == (0, 0)


@pytest.mark.parametrize(
    ("word", "pixels"),
    [
        ("raw:uint8[10,12,3]", RGB),
        ("raw:uint8[3,10,12]", RGB.transpose(2, 0, 1)),
        ("raw:uint8[1,10,12,3]", RGB[None]),
        ("raw:float32[10,12,3]", (RGB / 255).astype(np.float32)),
    ],
)
def test_arrays_are_drawn_as_their_types_say(
    tmp_path: Path, word: str, pixels: np.ndarray[Any, Any]
) -> None:
    """Channels are the smaller one of the outer sizes, and floats are scaled."""
    shard = write(tmp_path / "a.tfrecord", {"x": pixels.tobytes()})
    other = write(tmp_path / "b.tfrecord", {"image": RGB.tobytes(), "height": 10, "width": 12})
    tfrtool.contact_sheet(shard, tmp_path / "a.png", types={"x": word})
    tfrtool.contact_sheet(other, tmp_path / "b.png")
    box = (20, 50, 150, 180)
    found, expected = (tiles(tmp_path / f"{name}.png").crop(box) for name in "ab")
    assert found.tobytes() == expected.tobytes()


def test_a_string_for_each_byte_is_one_image(tmp_path: Path) -> None:
    """One image is drawn of a list of one-byte strings, also if its size is guessed."""
    square = RGB[:10, :10]
    strings = [bytes([byte]) for byte in square.reshape(-1).tolist()]
    shard = write(tmp_path / "a.tfrecord", {"image": strings}, {"image": strings})
    report = tfrtool.contact_sheet(shard, tmp_path / "a.png")
    assert (report.layout.images, report.guessed, report.broken) == (2, 2, ())
    typed = tfrtool.contact_sheet(shard, tmp_path / "b.png", types={"image": "raw:uint8[10,10,3]"})
    assert (typed.layout.images, typed.guessed, typed.broken) == (2, 0, ())


def test_an_array_of_images(tmp_path: Path) -> None:
    """An array of four sizes is several images, each with its number."""
    masks = np.stack([RGB[:, :, :1]] * 3)
    strings = [bytes([byte]) for byte in masks.reshape(-1).tolist()]
    shard = write(tmp_path / "a.tfrecord", {"mask": strings})
    report = tfrtool.contact_sheet(
        shard, tmp_path / "a.png", types={"mask": "raw:uint8[3,10,12,1]"}
    )
    assert (report.layout.images, report.broken) == (3, ())


@pytest.mark.parametrize("word", ["raw:uint8[*,10,12,3]", "raw:uint8[2,0,12,3]", "raw:uint8[0,9]"])
def test_an_array_without_images(tmp_path: Path, word: str) -> None:
    """An array without values is a broken image."""
    shard = write(tmp_path / "a.tfrecord", {"x": b""})
    report = tfrtool.contact_sheet(shard, tmp_path / "a.png", types={"x": word})
    assert [one.reason.endswith("is not an image") for one in report.broken] == [True]
    several = write(tmp_path / "b.tfrecord", {"x": [b"1" * 90] * 2, "n": 1}, {"n": 1})
    shown = tfrtool.contact_sheet(several, tmp_path / "b.png", types={"x": "raw:uint8[9,10]"})
    assert (shown.layout.images, len(shown.broken)) == (3, 1)


def test_arrays_that_are_no_images(tmp_path: Path) -> None:
    """A record that doesn't fit is a broken image with the reason."""
    records = [{"x": RGB.tobytes()}] * 2 + [{"x": b"1"}]
    shard = write(tmp_path / "a.tfrecord", *records)
    report = tfrtool.contact_sheet(shard, tmp_path / "a.png", types={"x": "raw:uint8[10,12,3]"})
    assert [one.record for one in report.broken] == [2]
    assert "expected 360 values ([10,12,3]), found 1" in report.broken[0].reason


def test_arrays_become_files(tmp_path: Path) -> None:
    """Pixels are PNG files, and other arrays NPY files."""
    shard = write(tmp_path / "a.tfrecord", {"x": RGB.tobytes(), "y": SINE.tobytes()})
    tfrtool.extract(shard, tmp_path / "x", types={"x": "raw:uint8[10,12,3]"})
    with Image.open(tmp_path / "x" / "a-000000.png") as image:
        assert np.array(image).tolist() == RGB.tolist()
    tfrtool.extract(shard, tmp_path / "y", types={"y": "raw:float32[2,*]"})
    assert np.load(tmp_path / "y" / "a-000000.npy").tolist() == SINE.reshape(2, -1).tolist()


def sound(path: Path) -> tuple[tuple[int, int, int], np.ndarray[Any, Any]]:
    """Return channels, bytes of a sample and rate of a WAV file, and its samples from -1 to 1."""
    with wave.open(str(path)) as file:
        size = file.getsampwidth()
        data = np.frombuffer(file.readframes(file.getnframes()), np.uint8).reshape(-1, size)
        whole = np.zeros((len(data), 4), np.uint8)
        whole[:, 4 - size :] = data
        numbers = whole.view("<i4")[:, 0] / 2**31
        return (file.getnchannels(), size, file.getframerate()), numbers


@pytest.mark.parametrize(
    ("record", "types", "facts", "expected"),
    [
        ({"audio": SINE, "sample_rate": 16_000}, {}, (1, 3, 16_000), SINE),
        ({"audio": np.round(SINE * 999) / 2**15, "sr": 8000.0}, {}, (1, 2, 8000), None),
        ({"samples": [1, -1, 300], "sampling_rate": 8000}, {}, (1, 2, 8000), [2**-15, -(2**-15)]),
        ({"pcm": [1, 2**20], "sample_rate": 44_100}, {}, (1, 4, 44_100), [2**-31, 2**-11]),
        (
            {"audio": SINE, "sample_rate": 16_000},
            {"audio": "float32[*,2]"},
            (2, 3, 16_000),
            SINE,
        ),
        (
            {"x": (SINE * 999).astype("<i2").tobytes(), "sample_rate": 16_000},
            {"x": "raw:int16[*]"},
            (1, 2, 16_000),
            (SINE * 999).astype("<i2") / 2**15,
        ),
    ],
)
def test_samples_become_wav_files(
    tmp_path: Path, record: dict[str, Any], types: dict[str, str], facts: Any, expected: Any
) -> None:
    """Samples whose rate is in another feature are files that any player reads."""
    record = {name: getattr(one, "tolist", lambda one=one: one)() for name, one in record.items()}
    shard = write(tmp_path / "a.tfrecord", record)
    report = tfrtool.extract(shard, tmp_path / "out", types=types)
    assert report.files == 1
    found, samples = sound(tmp_path / "out" / "a-000000.wav")
    assert found == facts
    if expected is not None:
        assert samples[: len(expected)] == pytest.approx(expected, abs=1.2e-7)


def test_encoded_sound_is_extracted_as_it_is(tmp_path: Path) -> None:
    """WAV bytes become a file with that suffix, without naming the feature."""
    shard = write(tmp_path / "a.tfrecord", {"wav": WAV, "text": "hello"})
    assert tfrtool.extract(shard, tmp_path / "out").feature == "wav"
    assert (tmp_path / "out" / "a-000000.wav").read_bytes() == WAV


def test_samples_without_a_rate_are_refused(tmp_path: Path, run: Run) -> None:
    """Without a sample rate, numbers are no sound; a record without it is skipped."""
    shard = write(tmp_path / "a.tfrecord", {"audio": [0.5, 0.25], "n": 3})
    code, _, error = run("extract", shard, tmp_path / "out", "--feature", "audio")
    assert code == 2
    assert "expected string, or numbers with a sample rate, found float32" in error
    some = write(tmp_path / "b.tfrecord", {"audio": [0.5], "sr": 8000}, {"audio": [0.5]})
    report = tfrtool.extract(some, tmp_path / "some", feature="audio")
    assert (report.files, report.skipped[0].reason) == (1, "no sample rate in 'sr'")


def test_sound_is_audio_for_hugging_face(tmp_path: Path, run: Run) -> None:
    """Samples and encoded sound are Audio in the output for datasets, and the way back is exact."""
    records: list[dict[str, Any]] = [
        {"audio": SINE.tolist(), "sample_rate": 16_000, "wav": WAV, "pcm": [1, -2], "n": 1},
        {"audio": SINE[::2].tolist(), "sample_rate": 8000, "wav": WAV, "pcm": [3]},
        {"sample_rate": 8000, "wav": WAV},
    ]
    shard = write(tmp_path / "a.tfrecord", *records)
    assert run("convert", shard, tmp_path / "hf", "--to", "hf")[0] == 0
    (path,) = (tmp_path / "hf").glob("*.parquet")
    table = pq.read_table(path)
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    sounds = [name for name, one in features.items() if one["_type"] == "Audio"]
    assert sorted(sounds) == ["audio", "pcm", "wav"]
    files = [one and one["bytes"] for one in table.column("audio").to_pylist()]
    assert [file and (file[:4], file[24:28]) for file in files] == [
        (b"RIFF", (16_000).to_bytes(4, "little")),
        (b"RIFF", (8000).to_bytes(4, "little")),
        None,
    ]
    assert table.column("wav").to_pylist()[0]["bytes"] == WAV
    assert run("convert", tmp_path / "hf", tmp_path / "back.tfrecord")[0] == 0
    sources = (shard, tmp_path / "back.tfrecord")
    first, second = (tfrtool.read_table(one, as_stored=True).to_arrow() for one in sources)
    assert second.select(first.column_names).to_pylist() == first.to_pylist()
    assert run("convert", shard, tmp_path / "stored", "--to", "hf", "--as-stored")[0] == 0
    (path,) = (tmp_path / "stored").glob("*.parquet")
    assert pq.read_schema(path).field("audio").type == pa.list_(pa.float32())


def test_samples_without_their_rates_are_not_written_as_sound(tmp_path: Path, run: Run) -> None:
    """A record without a rate ends the conversion, which names the way out."""
    shard = write(tmp_path / "a.tfrecord", {"audio": [0.5, 1], "sr": 8000}, {"audio": [0.5, 1]})
    code, _, error = run("convert", shard, tmp_path / "hf", "--to", "hf")
    assert code == 1
    assert "no sample rate; use --as-stored to write samples as numbers" in error
    words = ("--to", "hf", "--select", "audio")
    code, _, error = run("convert", shard, tmp_path / "hf", *words)
    assert code == 1
    assert "no column 'sr', which has the sample rate" in error
