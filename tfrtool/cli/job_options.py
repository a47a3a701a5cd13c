"""What commands that write datasets share: options, how they are parsed, and the final report."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import EXECUTION, ON_ERROR
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.writing.job_report import JobReport

SHARD_OPTIONS = {
    "--shards N": "Number of shards per split.",
    "--shard-size SIZE": "Approximate maximum size of a shard before compression, such as 100MB. "
    "Not with --shards.  [default: 128MiB]",
    "--compression none|gzip|zlib=none": "Compression of the shards. TFDS can only read "
    "uncompressed shards.",
}
RUN_OPTIONS = {
    "--resume": "Continue an interrupted run of this command.",
    "--overwrite": "Replace output that tfrtool wrote earlier.",
    "--dry-run": "Show what would be written, without writing it.",
}
OUTPUT_OPTIONS = {
    "--name TEXT": "Name of the dataset.  [default: from TARGET's path]",
    "--version X.Y.Z": "Version of the dataset.  [default: from TARGET's path, or 1.0.0]",
    **RUN_OPTIONS,
}
COPY_OPTIONS = {
    "Source": {
        "--allow-mixed": "Merge sources even if the features of their records differ.",
        **ON_ERROR,
    },
    "Shards": SHARD_OPTIONS,
    "Output": OUTPUT_OPTIONS,
    "Execution": EXECUTION,
}


def existing_policy(words: dict[str, Any]) -> str:
    """Take --resume and --overwrite out of a command's words, and return what they mean."""
    resume, overwrite = words.pop("resume"), words.pop("overwrite")
    if resume and overwrite:
        raise UsageError("--resume and --overwrite cannot be used together")
    return "resume" if resume else "overwrite" if overwrite else "refuse"


def parse_pairs(
    option: str, notations: Iterable[str], expected: str, sign: str = "="
) -> dict[str, str]:
    """Read the values of an option such as ``--rename OLD=NEW ...``.

    Args:
        option: its name, for errors.
        notations: what was typed.
        expected: the form of each, with an example: "OLD=NEW, such as label=class".
        sign: what separates the two parts.
    """
    pairs: dict[str, str] = {}
    for notation in notations:
        name, _, value = notation.rpartition(sign)
        if name in pairs:
            raise UsageError(f"{option} {name!r} is given twice")
        if not name or not value:
            raise UsageError(f"invalid {option} {notation[:100]!r}", expected=expected)
        pairs[name] = value
    return pairs


def parse_splits(notations: Iterable[str]) -> dict[str, float]:
    """Read the values of ``--split NAME=FRACTION ...``."""
    expected = "NAME=FRACTION, such as train=0.8"
    fractions = {}
    for name, text in parse_pairs("--split", notations, expected).items():
        try:
            fractions[name] = float(text)
        except ValueError:
            what = f"invalid --split {f'{name}={text}'[:100]!r}"
            raise UsageError(what, expected=expected) from None
    return fractions


def run_job(
    verb: Callable[..., "JobReport"],
    *paths: Any,
    as_json: bool,
    loads_tensorflow: bool = False,
    **words: Any,
) -> Outcome:
    """Run a job with the options of its command, and show its report."""
    existing = existing_policy(words)
    with Bars() as bars:
        if loads_tensorflow:
            words["starting"] = bars.loading_tensorflow
        report = verb(*paths, existing=existing, on_progress=bars, **words)
    return show_job(report, as_json=as_json)


def show_job(
    report: "JobReport", *, as_json: bool, data: Any = None, more: Iterable[str] = ()
) -> Outcome:
    """Show the report of a job, with ``more`` lines or as other ``data``; return its outcome."""
    from tfrtool.cli.render.write_text import job_page

    emit((data or report.to_json()) if as_json else [*job_page(report), *more])
    for warning in report.warnings:
        warn(warning)
    skipped = report.rejected and not report.complete
    return Outcome.DAMAGE if report.corrupt or skipped else Outcome.FINE
