"""What commands that copy records have in common: options, and what is shown in the end."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import ENGINE, ON_ERROR, WORKERS
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.convert.pipeline.job_report import JobReport

RUN_OPTIONS = {
    **WORKERS,
    "--resume": "Resume an interrupted job.",
    "--overwrite": "Replace what tfrtool wrote there before.",
    "--dry-run": "Show what would be written; write nothing.",
}
IDENTITY_OPTIONS = {
    "--name TEXT": "Dataset name; the default is made from the path.",
    "--version X.Y.Z": "Dataset version; the default is 1.0.0.",
}
TARGET_OPTIONS = {**IDENTITY_OPTIONS, **ON_ERROR, **RUN_OPTIONS}
JOB_OPTIONS = {
    "--shards N": "Number of shards of each split.",
    "--shard-size SIZE": "Largest size of a shard before compression. No shard is larger by more "
    "than one record, and the shards of a split are even. Not with --shards. The default is "
    "128MiB.",
    "--compression none|gzip|zlib=none": "Compression of the shards. TFDS reads uncompressed ones "
    "only.",
    "--allow-mixed": "Merge sources though their records have other features.",
    **TARGET_OPTIONS,
    **ENGINE,
}


def existing_of(words: dict[str, Any]) -> str:
    """Take --resume and --overwrite out of a command's words, and return what they mean."""
    resume, overwrite = words.pop("resume"), words.pop("overwrite")
    if resume and overwrite:
        raise UsageError("--resume and --overwrite cannot be used together")
    return "resume" if resume else "overwrite" if overwrite else "refuse"


def pairs_of(notations: Iterable[str], expected: str, sign: str = "=") -> dict[str, str]:
    """Read ``NAME=VALUE`` again and again; the error says what was ``expected``."""
    found: dict[str, str] = {}
    for notation in notations:
        name, _, value = notation.rpartition(sign)
        if not name or not value or name in found:
            what = "is given twice" if name in found else f"is not NAME{sign}VALUE"
            raise UsageError(f"{notation!r} {what}", expected=expected)
        found[name] = value
    return found


def splits_of(notations: Iterable[str]) -> dict[str, float]:
    """Read ``NAME=FRACTION`` again and again."""
    expected = "NAME=FRACTION, such as train=0.8"
    fractions = {}
    for name, text in pairs_of(notations, expected).items():
        try:
            fractions[name] = float(text)
        except ValueError:
            found = repr(f"{name}={text}"[:100])
            raise UsageError("not a fraction", expected=expected, found=found) from None
    return fractions


def run_job(
    verb: Callable[..., "JobReport"],
    *places: Any,
    as_json: bool,
    loads_tensorflow: bool = False,
    **words: Any,
) -> Outcome:
    """Run a job by the words of its command, and show what it has done."""
    existing = existing_of(words)
    with Bars() as bars:
        if loads_tensorflow:
            words["starting"] = bars.loading_tensorflow
        report = verb(*places, existing=existing, on_progress=bars, **words)
    return show_job(report, as_json=as_json)


def show_job(
    report: "JobReport", *, as_json: bool, data: Any = None, more: Iterable[str] = ()
) -> Outcome:
    """Show what a job has done, with ``more`` lines or as other ``data``; return how it ended."""
    from tfrtool.cli.render.write_text import job_page

    emit((data or report.to_json()) if as_json else [*job_page(report), *more])
    for warning in report.warnings:
        warn(warning)
    skipped = report.rejected and not report.complete
    return Outcome.DAMAGE if report.corrupt or skipped else Outcome.FINE
