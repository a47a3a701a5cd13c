"""Annotation formats, each declared once.

The help, the errors, what ``write`` reads, what ``extract`` writes and the tests follow from
`KINDS`. Readers and writers are imported when they are used, so that the help stays light.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ExportKind = Literal["coco", "voc", "yolo"]
"""The kinds that have a writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationKind:
    """An annotation format.

    Attributes:
        name: KIND in ``--annotations KIND:PATH``.
        title: the name of the format in the documentation.
        path: what PATH is in the documentation: DIR, or PATH if it can also be a file.
        reader: class that reads it, an `AnnotationReader` with a method ``open``.
        writer: class with which ``extract`` writes it, an `AnnotatedImages`. "" if it is only read.
        takes_root: whether files may also be in the directory that ``--root`` names.
    """

    name: str
    title: str
    path: Literal["DIR", "PATH"] = "DIR"
    reader: str
    writer: str = ""
    takes_root: bool = False

    @property
    def argument(self) -> str:
        """The value of ``--annotations``, as the documentation shows it."""
        return f"{self.name}:{self.path}"


_READERS = "tfrtool.sources.annotations"
_WRITERS = "tfrtool.inspection.extract"

KINDS: Mapping[str, AnnotationKind] = {
    kind.name: kind
    for kind in (
        AnnotationKind(
            name="coco",
            title="COCO",
            path="PATH",
            reader=f"{_READERS}.coco:CocoReader",
            writer=f"{_WRITERS}.annotations:CocoFiles",
        ),
        AnnotationKind(
            name="voc",
            title="Pascal VOC",
            reader=f"{_READERS}.voc:VocReader",
            writer=f"{_WRITERS}.annotations:VocFiles",
        ),
        AnnotationKind(
            name="yolo",
            title="YOLO",
            reader=f"{_READERS}.yolo:YoloReader",
            writer=f"{_WRITERS}.annotations:YoloFiles",
            takes_root=True,
        ),
        AnnotationKind(
            name="csv", title="CSV", path="PATH", reader=f"{_READERS}.box_table:CsvBoxReader"
        ),
        AnnotationKind(name="labelme", title="LabelMe", reader=f"{_READERS}.labelme:LabelmeReader"),
        AnnotationKind(
            name="cvat", title="CVAT", path="PATH", reader=f"{_READERS}.cvat:CvatReader"
        ),
        AnnotationKind(name="via", title="VIA", path="PATH", reader=f"{_READERS}.via:ViaReader"),
        AnnotationKind(
            name="labelstudio",
            title="Label Studio",
            path="PATH",
            reader=f"{_READERS}.label_studio:LabelStudioReader",
        ),
        AnnotationKind(name="kitti", title="KITTI", reader=f"{_READERS}.text_labels:KittiReader"),
        AnnotationKind(name="dota", title="DOTA", reader=f"{_READERS}.text_labels:DotaReader"),
        AnnotationKind(name="masks", title="masks", reader=f"{_READERS}.mask_files:MaskReader"),
    )
}
"""By name, in the order in which the help lists them."""
