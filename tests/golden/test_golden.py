"""What the commands that copy, create or change data print and write, compared with files.

`make golden` rewrites the files; the diff shows what changed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

import tfrtool
from tests.golden.golden_cases import CASES, Case
from tfrtool.cli import main
from tfrtool.records.framing import frame

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))

MASKS = (
    (re.compile(r"\b\d+(\.\d+)? s\b"), "SECONDS s"),
    (re.compile(r'("seconds": )[\d.]+'), r"\1SECONDS"),
    (re.compile(r'("plan": )"\w+"'), r'\1"PLAN"'),
)
"""What differs from run to run: a plan holds the times of files. Folders are masked, too."""

SIZES = (
    (re.compile(r"\b\d+(\.\d+)? ([KM]i)?B\b"), "SIZE"),
    (re.compile(r'("\w*bytes": )\d+'), r"\1SIZE"),
    (re.compile(r'("(sha256|crc32c)": )"\w+"'), r'\1"DIGEST"'),
)
"""What differs between versions of libraries that compress or encode, where a case does so."""

PAYLOADS = ((re.compile(r"\b[0-9a-f]{16}\b"), "DIGEST"),)
"""What differs too where records hold re-encoded images."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images, tables and a dataset, where every case begins."""
    root = tmp_path_factory.mktemp("golden") / "template"
    for folder, numbers in (("photos", range(6)), ("more", range(6, 8)), ("bad", (37, 61))):
        for label in ("cat", "dog"):
            (root / folder / label).mkdir(parents=True)
            for number in numbers:
                name = f"{label}/{label}-{number:03}.jpg"
                shutil.copy(FIXTURES / "pets" / name, root / folder / name)
    shutil.make_archive(str(root / "more"), "zip", root / "more")
    rows = [f"{label}/{label}-{n:03}.jpg,{label},{n}\n" for label in ("cat", "dog") for n in (0, 1)]
    (root / "photos" / "labels.csv").write_text("file,label,age\n" + "".join(rows))
    _write_pets(root)
    return root


def _write_pets(root: Path) -> None:
    """Write the photos as a dataset of two splits, without TensorFlow."""
    images = sorted((root / "photos").glob("*/*.jpg"), key=lambda path: path.stem[::-1])
    payloads = [
        tfrtool.encode_example(
            {
                "image": path.read_bytes(),
                "image/filename": path.name,
                "label": int(path.parent.name == "dog"),
            }
        )
        for path in images
    ]
    raw = root / "raw"
    raw.mkdir()
    (raw / "label.labels.txt").write_text("cat\ndog\n")
    for split, chosen in (("train", payloads[:8]), ("test", payloads[8:])):
        data = b"".join(map(frame, chosen))
        (raw / f"pets-{split}.tfrecord-00000-of-00001").write_bytes(data)
    tfrtool.reshard(raw, root / "pets", shards=2)
    shutil.rmtree(raw)


class Result(NamedTuple):
    """What a command of a case gave."""

    code: int
    out: str
    err: str


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.tf] if case.tf else []) for case in CASES],
)
def test_golden(
    case: Case,
    request: pytest.FixtureRequest,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A case prints and writes what its file holds, with --json too."""
    if case.tf:
        request.getfixturevalue("tf")  # what its import prints is not the command's
    monkeypatch.setenv("COLUMNS", "100")
    runs: dict[str, tuple[list[Result | None], dict[str, str]]] = {}
    for run in ("text", "json"):
        folder = tmp_path / run
        shutil.copytree(template, folder)
        (folder / "fixtures").symlink_to(FIXTURES)
        monkeypatch.chdir(folder)
        before = _digests(folder)
        results: list[Result | None] = []
        failed = 0
        for number, line in enumerate(case.commands):
            plain = runs["text"][0][number] if run == "json" else None
            if plain is not None and plain.code in (1, 2) and not plain.out:
                failed += 1
            if plain is not None and plain.code in (1, 2) and failed > 1 and not plain.out:
                results.append(plain)  # errors are the same with --json, as the first shows
            elif line.startswith("tfrtool "):
                results.append(_run(line + " --json" * (run == "json"), case, capfd))
            else:  # what it changes is no command's work
                so_far = _digests(folder).items()
                subprocess.run(line, shell=True, check=True)
                before.update(_digests(folder).items() - so_far)
                results.append(None)
        written = dict(_digests(folder).items() - before.items())
        runs[run] = results, {path: _describe(Path(path), case) for path in sorted(written)}
    assert runs["json"][1] == runs["text"][1], "a second run writes something else"
    pages = map(_page, case.commands, runs["text"][0], runs["json"][0])
    printed = {result.out for result in runs["json"][0] if result and result.out}
    same = "  as printed with --json\n"
    files = (path + (same if t[1:] in printed else t) for path, t in runs["text"][1].items())
    _compare(HERE / f"{case.name}.txt", "".join(pages) + "== files\n" + "".join(files))


def test_every_file_has_a_case() -> None:
    """No golden file stays when its case is gone."""
    assert sorted(path.stem for path in HERE.glob("*.txt")) == sorted(c.name for c in CASES)


def _compare(path: Path, text: str) -> None:
    if UPDATE:
        path.write_text(text, "utf-8")
    expected = path.read_text("utf-8") if path.exists() else ""
    lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), "expected", "found")
    assert text == expected, f"{path.name} (make golden accepts this):\n" + "\n".join(lines)


def _run(line: str, case: Case, capfd: pytest.CaptureFixture[str]) -> Result:
    """Run a command in this process."""
    capfd.readouterr()
    code = main(shlex.split(line)[1:])
    printed = capfd.readouterr()
    return Result(code, _mask(printed.out, case), _mask(printed.err, case))


def _page(line: str, plain: Result | None, typed: Result | None) -> str:
    if plain is None or typed is None:
        return f"$ {line}\n\n"
    assert typed.code == plain.code, line
    parts = [("stdout", plain.out), ("stderr", plain.err), ("json", typed.out)]
    if typed.err != plain.err:
        parts.append(("json stderr", typed.err or "nothing\n"))
    page = "".join(f"-- {name}\n{text}" for name, text in parts if text)
    return f"$ {line}\nexit code {plain.code}\n{page}\n"


def _mask(text: str, case: Case) -> str:
    """Return the text without what differs from run to run, its JSON on many lines."""
    if text.startswith("{"):
        objects = map(json.loads, text.splitlines())
        text = "".join(json.dumps(one, indent=1, ensure_ascii=False) + "\n" for one in objects)
    text = text.replace(str(Path.cwd()), "FOLDER")
    varying = {None: (), "files": SIZES, "payloads": SIZES + PAYLOADS}[case.varies]
    for pattern, mask in MASKS + varying:
        text = pattern.sub(mask, text)
    return text


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): _sha(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "fixtures" not in path.relative_to(folder).parts
    }


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _describe(path: Path, case: Case) -> str:
    """Return what a file holds: its records, and digests of what no library decides."""
    if path.name.endswith("_report.json"):
        return "\n" + _mask(json.dumps(json.loads(path.read_text("utf-8"))), case)
    digest = "" if case.varies else f"  sha256 {_sha(path)[:16]}"
    if ".tfrecord" in path.name and path.suffix not in (".idx", ".json"):
        payloads = [one.payload for one in tfrtool.read_records(path)]
        shown = [] if case.varies == "payloads" else map(_short, payloads)
        return f"  {len(payloads)} records{digest}\n" + "".join(f"  {one}\n" for one in shown)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        return f"  {table.num_rows} rows, values {_short(repr(table.to_pylist()).encode())}\n"
    if path.suffix == ".tar":
        with tarfile.open(path) as archive:
            members = [(one.name, archive.extractfile(one)) for one in archive]
            shown = [f"  {name} {_short(file.read())}\n" for name, file in members if file]
        return "\n" + "".join(shown)
    if path.suffix in (".csv", ".idx", ".jsonl", ".txt") and case.varies != "payloads":
        return f"  {path.read_bytes().count(0x0A)} lines  sha256 {_sha(path)[:16]}\n"
    return f"{digest}\n"


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
