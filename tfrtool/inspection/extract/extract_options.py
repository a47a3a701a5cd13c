"""The options of extract."""

from dataclasses import dataclass
from typing import Literal

from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.storage.progress import OnProgress, no_progress


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(Options):
    """What to extract, and under which names."""

    feature: str | None = option(
        None, "String feature to extract.  [default: the image]", metavar="NAME"
    )
    by: str | None = option(
        None, "Feature that names the class folders.  [default: the label]", metavar="FEATURE"
    )
    name: str | None = option(
        None,
        "Feature that names the files.  [default: image/filename or similar]",
        metavar="FEATURE",
    )
    flat: bool = option(False, "Write all files directly into TARGET, without class folders.")
    limit: int | None = option(None, "Extract only the first N records.", metavar="N", least=1)
    annotations: Literal["coco", "voc", "yolo"] | None = option(
        None, "Also export the annotated objects in this format."
    )
    overwrite: bool = option(False, "Replace what an earlier extract wrote to TARGET.")
    on_progress: OnProgress = option(
        no_progress, "called after each record with the number of bytes read.", cli=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flat and self.by is not None:
            raise UsageError("--by and --flat cannot be used together")
        if self.annotations is not None and self.by is not None:
            raise UsageError("--by and --annotations cannot be used together")
