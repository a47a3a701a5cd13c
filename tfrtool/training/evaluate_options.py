"""Options of evaluate and predict."""

from dataclasses import dataclass
from typing import Literal

from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.loading.options import BatchOptions, OpenOptions, PathLike
from tfrtool.storage.arguments import parse_path_fields
from tfrtool.storage.progress import OnProgress, no_progress


@dataclass(frozen=True, kw_only=True)
class OwnModelOptions(Options):
    """What tfrtool can't know of a ``.keras`` file that it did not save."""

    labels: PathLike | None = option(
        None,
        "Text file with the class names of a .keras file of your own, one per line, in the order "
        "of its outputs.  [default: from the dataset, if it has names]",
        metavar="FILE",
        path="local input",
        group="Model",
        common=True,
    )
    rescale: Literal["model", "unit", "none"] = option(
        "model",
        "Pixels that a .keras file of your own gets: 0..1 (unit), 0..255 (none), or 0..255 if it "
        "scales them itself and otherwise 0..1 (model).",
        group="Model",
    )

    def check_unused(self) -> None:
        """Raise a `UsageError` if these options are set for a model that tfrtool saved."""
        if self.labels is not None or self.rescale != "model":
            name = "--labels" if self.labels is not None else "--rescale"
            raise UsageError(f"{name} requires a .keras file of your own")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(OwnModelOptions, OpenOptions, BatchOptions):
    """What to evaluate on, and what to save."""

    split: str | None = option(
        None,
        "Split to evaluate on, or several as one, or slices such as train[80%:].  [default: test, "
        "validation or the only one]",
        metavar="NAME[,NAME...]",
        group="Dataset",
        common=True,
    )
    top_k: int = option(
        5,
        "Also report how often the class is among the K most probable, if there are more classes.",
        metavar="K",
        least=2,
        group="Output",
        common=True,
    )
    out: PathLike | None = option(
        None,
        "Directory for predictions.jsonl, confusion.png, most_wrong.png and evaluation.json.",
        metavar="DIR",
        path="local output",
        group="Output",
        common=True,
    )
    top_losses: int = option(
        36,
        "Number of worst mistakes to show, draw and list: misclassified images with the highest "
        "loss.",
        metavar="N",
        least=0,
        group="Output",
        common=True,
    )
    drop_list: PathLike | None = option(
        None,
        "Write the worst mistakes to FILE, as a list for filter --drop.",
        metavar="FILE",
        path="local output",
        group="Output",
    )
    overwrite: bool = option(
        False, "Replace the files of an earlier evaluation.", group="Output", common=True
    )
    on_progress: OnProgress = option(no_progress, "called after each batch.", cli=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_path_fields(self, "out", "drop_list")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(OwnModelOptions, BatchOptions):
    """How images are classified."""

    top: int = option(
        1, "Number of classes to print per image, most probable first.", metavar="K", least=1
    )
    on_progress: OnProgress = option(no_progress, "called after each image.", cli=None)
