"""What commands that write datasets share: options, how they are parsed, and the final report."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn

if TYPE_CHECKING:
    from tfrtool.writing.job_report import JobReport


def run_job(
    verb: Callable[..., "JobReport"],
    *paths: Any,
    as_json: bool,
    loads_tensorflow: bool = False,
    **words: Any,
) -> Outcome:
    """Run a job with the options of its command, and show its report."""
    with Bars() as bars:
        if loads_tensorflow:
            words["starting"] = bars.loading_tensorflow
        report = verb(*paths, on_progress=bars, **words)
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
