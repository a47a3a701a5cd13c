"""Writing photographs to shards, against tar, a plain loop, Pillow alone and TFDS."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

import tfrtool
from tests.bench.photographs import make_photographs
from tests.bench.timing import Pair, compare

__all__ = ["run"]

_COUNT = 1000
_SHARDS = 8


def run(directory: Path) -> Iterator[Pair | str]:
    """Yield each comparison; the photographs are in the page cache.

    Start-up is counted only in the comparison of processes.
    """
    import tensorflow as tf

    photographs = make_photographs(directory / "photographs", _COUNT)
    files = sorted(photographs.rglob("*.jpg"))
    size = sum(path.stat().st_size for path in files)
    yield f"{len(files):,} photographs, {size / 1e6:.1f} MB, {len(os.sched_getaffinity(0))} cores"

    numbers = count()
    builder_class = _builder_class(files)

    def ours(check: str) -> Callable[[], int]:
        def write() -> int:
            # Always a new place, as for tar: replacing a file waits for the disk.
            dataset = directory / f"ours{next(numbers)}"
            report = tfrtool.write(photographs, dataset, shards=_SHARDS, check=check)  # type: ignore[arg-type]
            return sum(split.records for split in report.splits.values())

        return write

    def tar() -> int:
        out = directory / f"photographs{next(numbers)}.tar"
        subprocess.run(["tar", "cf", out, photographs.name], cwd=directory, check=True)
        return len(files)

    def loop() -> int:
        with tf.io.TFRecordWriter(str(directory / f"loop{next(numbers)}.tfrecord")) as writer:
            for path in files:
                features = {
                    "image": _bytes(tf, path.read_bytes()),
                    "image/filename": _bytes(tf, path.name.encode()),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[0])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString(deterministic=True))
        return len(files)

    def decode() -> int:
        for path in files:
            with Image.open(io.BytesIO(path.read_bytes())) as image:
                image.load()
        return len(files)

    yield compare("write --check header (ours), tar cf (theirs)", ours("header"), tar)
    yield compare(
        "write --check header (ours), a plain TFRecordWriter loop (theirs)",
        ours("header"),
        loop,
    )
    yield compare(
        "write --check decode on all cores (ours), Pillow's decoding alone on one (theirs)",
        ours("decode"),
        decode,
    )
    yield compare(
        "write --check header (ours), TFDS' download_and_prepare without any check (theirs)",
        ours("header"),
        lambda: _tfds(builder_class, directory / f"tfds{next(numbers)}"),
    )
    python = sys.executable
    yield compare(
        "the same, each as a process from its start to its end",
        lambda: _process(
            [python, "-m", "tfrtool", "write", photographs, "--check", "header", "--shards"],
            str(_SHARDS),
            directory / f"ours{next(numbers)}",
        ),
        lambda: _process([python, "-c", _TFDS, photographs], directory / f"tfds{next(numbers)}"),
    )
    yield _memory(files[0], directory)


def _process(command: list[Any], *more: Any) -> int:
    return subprocess.run([*command, *more], capture_output=True, check=True).returncode


def _bytes(tf: object, value: bytes) -> object:
    train = tf.train  # type: ignore[attr-defined]
    return train.Feature(bytes_list=train.BytesList(value=[value]))


def _builder_class(files: list[Path]) -> Any:
    """Return the same photographs as a builder class of TFDS, which takes each name once."""
    import tensorflow_datasets as tfds

    class Photographs(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
        """Photographs of cats and dogs."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> object:
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(),
                        "image/filename": tfds.features.Text(),
                        "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                    }
                ),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, _manager: object) -> object:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[tuple[str, dict[str, object]]]:
            for path in files:
                key = f"{path.parent.name}/{path.name}"
                yield key, {"image": str(path), "image/filename": key, "label": path.parent.name}

    return Photographs


def _tfds(builder_class: Any, data_dir: Path) -> int:
    with contextlib.redirect_stdout(sys.stderr):
        builder = builder_class(data_dir=str(data_dir))
        builder.download_and_prepare()
    return int(builder.info.splits["train"].num_examples)


_TFDS = """
import sys
from pathlib import Path
from tests.bench import writing
files = sorted(Path(sys.argv[1]).rglob("*.jpg"))
writing._tfds(writing._builder_class(files), Path(sys.argv[2]))
"""

_WRITE = """
import re, sys
from pathlib import Path
import tensorflow
import tfrtool
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
tfrtool.write(sys.argv[1], sys.argv[2], check="header", shards=64)
print(peak() - before)
"""


def _memory(photograph: Path, directory: Path) -> str:
    """Write few and many links to one photograph, and tell what an item takes."""
    peaks = {}
    for items in (1_000, 101_000):
        source = directory / f"links{items}"
        for number in range(items):
            folder = source / f"class{number % 10}"
            first = folder / "photograph.jpg"
            if not folder.exists():  # a file of its own: ext4 allows 65,000 links
                folder.mkdir(parents=True)
                shutil.copy(photograph, first)
            os.link(first, folder / f"photograph-{number:06d}.jpg")
        out = directory / f"out{items}"
        done = subprocess.run(
            [sys.executable, "-c", _WRITE, str(source), str(out)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks[items] = int(done.stdout.split()[-1]) * 1024
        shutil.rmtree(out)
        shutil.rmtree(source)
    few, many = peaks.values()
    return (
        f"peak memory beyond what TensorFlow takes: {few / 2**20:.1f} MiB for 1,000 items, "
        f"{many / 2**20:.1f} MiB for 101,000: {(many - few) / 100_000:.0f} bytes an item"
    )
