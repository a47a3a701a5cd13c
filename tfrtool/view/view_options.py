"""The options of the report and the viewer."""

from dataclasses import dataclass

from tfrtool.declare import Options, option
from tfrtool.engines.engine import workers_option
from tfrtool.inspection.inspect_options import AsStoredOption
from tfrtool.storage.progress import OnProgress, no_progress


@dataclass(frozen=True, kw_only=True)
class ReportFileOption(Options):
    """Where the command writes the report."""

    out: str = option(..., "HTML file to write.", metavar="FILE", path="output")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(AsStoredOption):
    """How a report is made."""

    overwrite: bool = option(False, "Replace an existing file.")
    workers: int | None = workers_option()
    on_progress: OnProgress = option(
        no_progress, "called as records and shards are read.", cli=None
    )


@dataclass(frozen=True, kw_only=True)
class ViewOptions(AsStoredOption):
    """How the viewer is served."""

    predictions: str | None = option(
        None,
        "Show these predictions next to the labels, highest loss first: predictions.jsonl of "
        "evaluate, or the lines of predict --json.",
        metavar="FILE",
        path="local input",
    )
    host: str = option(
        "127.0.0.1",
        "Address to listen on. If it isn't local, other machines that have the token can see the "
        "records.",
        metavar="ADDRESS",
    )
    port: int = option(
        0,
        "Port to listen on, at which bookmarks work after a restart; 0 picks a free one.",
        metavar="PORT",
        least=0,
        most=65535,
    )
    open: bool = option(True, "Open the page in your browser.", cli="--open/--no-open")
    workers: int = option(
        1, "Number of processes that read records in the background.", metavar="N", least=1
    )
