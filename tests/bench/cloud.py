"""Every command on s3://, against moto: the same results as here, and what each one transfers.

``python -m tests.bench.cloud [PHOTOGRAPHS [WORDS]]`` runs the steps whose names have one of the
words, with those that make what they read. Seconds are of whole commands, start-up included, and
beside a store that is a Python program on the same machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.photographs import make_photographs
from tests.emulators import Bucket, Emulators

__all__ = ["run"]


@dataclass(frozen=True)
class Step:
    """A command, with ``{B}`` where a directory or ``s3://bucket`` stands.

    ``{D}`` is a local directory, and ``{L}`` that of the photographs. ``makes`` are the paths below
    ``{B}`` whose bytes must be the same here and there; ``local`` those below ``{D}``. ``needed``
    steps are always run.
    """

    name: str
    command: str
    makes: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    needed: bool = False
    words: tuple[str, ...] = ()
    """Further arguments, which hold spaces."""

    compare: bool = True
    """Whether what it prints is the same each time, but for times and paths."""


_SHARD = "pets/pets-train.tfrecord-00000-of-00004"

_SPLITS = "--split train=0.8 --split validation=0.2 --shards 4"

_TIMES = re.compile(r'"(?:\w+_)?seconds": ?[0-9.e-]+')
_ETAGS = re.compile(r',?\s*"etag": ?(?:null|"(?:[^"\\]|\\.)*")|(?<="plan": ")\w+')
"""What a dataset's report has of each run, of stores alone, and of the paths of sources."""

STEPS = (
    Step(
        "write, photographs here",
        "write {L}/photos {B}/pets " + _SPLITS,
        makes=("pets",),
        needed=True,
    ),
    Step("write --resume, all done", "write {L}/photos {B}/pets --resume " + _SPLITS),
    Step("write, photographs there", "write {B}/photos {B}/pets2 " + _SPLITS, makes=("pets2",)),
    Step("count", "count {B}/pets"),
    Step("verify", "verify {B}/pets"),
    Step("verify --images", "verify {B}/pets --images"),
    # Of a shard in a store it does not read all, and says so.
    Step("inspect shard", "inspect shard {B}/" + _SHARD, compare=False),
    Step("inspect schema", "inspect schema {B}/pets"),
    Step("inspect schema --sample", "inspect schema {B}/pets --sample 10"),
    Step("inspect dataset", "inspect dataset {B}/pets"),
    Step("inspect dataset --emit croissant", "inspect dataset {B}/pets --emit croissant"),
    Step("inspect stats", "inspect stats {B}/pets"),
    Step(
        "inspect images",
        "inspect images {B}/pets --limit 20 --out {D}/sheet.png",
        local=("sheet.png",),
    ),
    Step("cat --limit 3", "cat {B}/pets --limit 3"),
    Step("cat --records 10", "cat {B}/" + _SHARD + " --records 10"),
    Step(
        "query",
        "query {B}/pets",
        words=("SELECT label, count(*) n FROM records GROUP BY label ORDER BY label",),
    ),
    Step("query one shard", "query {B}/" + _SHARD, words=("SELECT max(_bytes) FROM records",)),
    Step("repair", "repair {B}/" + _SHARD + " {B}/repaired.tfrecord", makes=("repaired.tfrecord",)),
    Step("extract", "extract {B}/pets {D}/extracted", local=("extracted",)),
    Step(
        "reshard",
        "reshard {B}/pets {B}/resharded --shards 2 --shuffle --seed 7",
        makes=("resharded",),
    ),
    Step(
        "filter", "filter {B}/pets {B}/filtered --where", makes=("filtered",), words=("label = 1",)
    ),
    Step("edit", "edit {B}/pets {B}/edited --drop image/filename", makes=("edited",)),
    Step(
        "append",
        "append {B}/pets {B}/more --out {B}/appended --split train",
        makes=("appended",),
        compare=False,  # it warns that a store has no hard links
    ),
    Step("diff", "diff {B}/pets {B}/pets"),
    Step(
        "convert to parquet",
        "convert {B}/pets {B}/parquet --to parquet",
        makes=("parquet",),
        needed=True,
    ),
    Step("convert from parquet", "convert {B}/parquet {B}/back --to tfrecord", makes=("back",)),
    Step("convert to jsonl", "convert {B}/pets {B}/jsonl --to jsonl", makes=("jsonl",)),
    Step("convert to csv", "convert {B}/pets {B}/csv --to csv", makes=("csv",)),
    Step("convert to webdataset", "convert {B}/pets {B}/web --to webdataset", makes=("web",)),
    Step("convert to arrayrecord", "convert {B}/pets {B}/array --to arrayrecord", makes=("array",)),
    Step("convert to hf", "convert {B}/pets {B}/hf --to hf", makes=("hf",)),
    Step(
        "train",
        "train {B}/pets --model cnn --image-size 64 --epochs 2 --out {D}/run",
        needed=True,
        compare=False,
    ),
    Step(
        "train, again",
        "train {B}/pets --model cnn --image-size 64 --epochs 2 --out {D}/run2",
        compare=False,
    ),
    Step("predict", "predict {D}/run {B}/more"),
    Step("index", "index {B}/pets", makes=("pets",)),
)


@dataclass
class Run:
    """What came of a step: its exit code, what it printed, its seconds and CPU seconds."""

    code: int
    out: str
    err: str
    seconds: float
    cpu: float
    files: dict[str, str] = field(default_factory=dict)


def _tfrtool(step: Step, base: str, here: Path, local: Path, environment: dict[str, str]) -> Run:
    words = [word.format(B=base, D=here, L=local) for word in step.command.split()] + list(
        step.words
    )
    started, cpu = time.perf_counter(), _cpu()
    done = subprocess.run(
        [sys.executable, "-m", "tfrtool", *words, *(() if "croissant" in words else ("--json",))],
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HOME": str(here),
            "XDG_CACHE_HOME": str(here / "cache"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    seconds = time.perf_counter() - started
    out = done.stdout.replace(base, "BASE").replace(str(here), "HERE")
    out = _TIMES.sub('"seconds": 0', _ETAGS.sub("", out))
    return Run(done.returncode, out, done.stderr, seconds, _cpu() - cpu)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _digests(root: Path, name: str) -> dict[str, str]:
    paths = [root / name] if (root / name).is_file() else sorted((root / name).rglob("*"))
    return {
        path.relative_to(root).as_posix(): _digest(path.name, path.read_bytes(), str(root))
        for path in paths
        if path.is_file()
    }


def _digest(name: str, data: bytes, base: str) -> str:
    """Return the SHA-256 of a file, in which times and paths count for nothing."""
    if name.endswith(".json"):
        text = data.decode().replace(base, "BASE")
        data = _TIMES.sub('"seconds": 0', _ETAGS.sub("", text)).encode()
    return hashlib.sha256(data).hexdigest()


def _digests_of_keys(bucket: Bucket, name: str) -> dict[str, str]:
    return {
        key: _digest(key, bucket.get(key), bucket.url)
        for key in bucket.names(name)
        if key == name or key.startswith(f"{name}/")
    }


def _differences(here: Run, there: Run, step: Step) -> str:
    if here.code not in (0, 3):
        return f"FAILS HERE, TOO: {here.code}: {here.err.strip()[-150:]}"
    if here.code != there.code:
        lines = there.err.strip().splitlines() or ["?"]
        return f"EXIT CODE {there.code}, not {here.code}: {lines[-1][:150]}"
    if step.compare and sorted(here.out.splitlines()) != sorted(there.out.splitlines()):
        if os.environ.get("TFRTOOL_BENCH_LOG"):
            sys.stderr.write(f"HERE  {here.out}THERE {there.out}")
        return "PRINTS OTHERWISE"
    names = set(here.files) ^ set(there.files)
    others = [name for name in here.files if here.files[name] != there.files.get(name)]
    if names or others:
        return f"OTHER FILES: {sorted(names | set(others))[:6]}"
    return "same"


def run(directory: Path, photographs: int = 400, only: tuple[str, ...] = ()) -> Iterator[str]:
    """Run every step here and on s3://, compare, and yield a line of each."""
    local, beside = directory / "local", directory / "beside"
    make_photographs(local / "photos", photographs)
    make_photographs(local / "more", 20)
    beside.mkdir()
    emulators = Emulators()
    try:
        bucket = emulators.bucket()
        bucket.put_folder(local / "photos", "photos/")
        bucket.put_folder(local / "more", "more/")
        size = sum(path.stat().st_size for path in (local / "photos").rglob("*.jpg"))
        yield f"{photographs} photographs, {size / 1e6:.2f} MB"
        yield (
            "| command | GET | HEAD | PUT | POST | DELETE | MB down | MB up | s here | s on s3 "
            "| CPU here | CPU on s3 | result |"
        )
        yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
        for step in STEPS:
            if step.needed or not only or any(word in step.name for word in only):
                yield _line(step, local, beside, bucket)
    finally:
        emulators.end()


def _line(step: Step, local: Path, beside: Path, bucket: Bucket) -> str:
    runs = []
    for base, name, environment in (
        (str(local), "here", {}),
        (bucket.url, "there", bucket.environment),
    ):
        own = beside / name
        own.mkdir(exist_ok=True)
        bucket.forget()
        runs.append(_tfrtool(step, base, own, local, environment))
        for made in step.local:
            runs[-1].files.update(_digests(own, made))
    here, there = runs
    log = bucket.log()
    for made in step.makes:
        here.files.update(_digests(local, made))
        there.files.update(_digests_of_keys(bucket, made))
    if os.environ.get("TFRTOOL_BENCH_LOG"):
        sys.stderr.write("".join(json.dumps(entry) + "\n" for entry in log))
    methods = [entry["method"] for entry in log]
    counts = " | ".join(
        str(methods.count(method)) for method in ("GET", "HEAD", "PUT", "POST", "DELETE")
    )
    result = _differences(here, there, step)
    down, up = (sum(entry[way] for entry in log) / 1e6 for way in ("down", "up"))
    return (
        f"| {step.name} | {counts} | {down:.3f} | {up:.3f} | {here.seconds:.2f} "
        f"| {there.seconds:.2f} | {here.cpu:.2f} | {there.cpu:.2f} | {result} |"
    )


def main() -> None:
    """Run it with what the command line says."""
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), int(words[0]) if words else 400, tuple(words[1:])):
            print(line, flush=True)


if __name__ == "__main__":
    main()
