"""What a user says of a source beyond where it is: which annotations, columns and labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfrtool.errors import UsageError, enumeration
from tfrtool.examples.objects.record_features import Layout, Masks
from tfrtool.sources.annotations.annotation_kinds import KINDS
from tfrtool.storage.arguments import parse_enum_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How a source is understood; `tfrtool.write` says what each of these means."""

    annotations: str | Sequence[str] | None = ()  # "coco:PATH", "voc:DIR" ...
    masks: Masks | str = Masks.POLYGONS
    columns: tuple[str, ...] = ()  # "NAME" or "NAME:DTYPE"
    all_columns: bool = False
    labels: str | None = None  # a file with class names, or "keep"
    multi_label: str | None = None  # what stands between several labels of one image
    path_column: str | None = None  # of a table
    label_column: str | None = None  # of a table
    label_columns: tuple[str, ...] = ()  # of a table: 0 or 1 for each label
    label_depth: int | None = None  # of the folders that are classes, from 1
    split_labels: tuple[str, ...] = ()  # "SPLIT=FILE": lists of labels of images in folders
    group_by: str | None = None  # a column, or a regular expression for keys
    class_map: tuple[str, ...] = ()  # "OLD=NEW", or files of such pairs
    only_classes: tuple[str, ...] = ()  # new names
    min_box: float = 0  # pixels of a box's shorter side
    skip_empty: bool = False  # whether images without objects are dropped
    layout: Layout | str | None = None  # None is tfod for annotations, else tfds

    def __post_init__(self) -> None:
        parse_enum_fields(self, masks=Masks, layout=Layout)
        annotations = self.annotations or ()
        annotations = (annotations,) if isinstance(annotations, str) else tuple(annotations)
        object.__setattr__(self, "annotations", annotations)
        if annotations:
            for argument in annotations:
                kind, _, path = str(argument).partition(":")
                if kind not in KINDS or not path:
                    expected = f"KIND:PATH with KIND {enumeration([*KINDS], 'or')}"
                    raise UsageError(f"invalid --annotations {argument!r}", expected=expected)
            others = (self.writes_columns, self.multi_label, self.label_depth, self.split_labels)
            columns = (self.path_column, self.label_column, self.label_columns)
            if self.labels == "keep" or any((*others, *columns)):
                raise UsageError(
                    "--annotations can't be used with --column, --all-columns, --multi-label, "
                    "--path-column, --label-column, --label-columns, --label-depth, "
                    "--split-labels or --labels keep"
                )
        else:
            for name, usual in (("masks", Masks.POLYGONS), ("min_box", 0), ("skip_empty", False)):
                if getattr(self, name) != usual:
                    raise UsageError(f"--{name.replace('_', '-')} needs --annotations")
        if (self.class_map or self.only_classes) and self.labels == "keep":
            raise UsageError("--labels keep and --class-map can't be used together")
        if self.multi_label is not None and self.labels == "keep":
            raise UsageError("--labels keep and --multi-label can't be used together")
        if self.label_columns:
            self._check_label_columns()
        if self.label_column is not None and self.label_column in {
            *self.columns,
            *(column.rpartition(":")[0] for column in self.columns),
        }:
            what = f"--label-column and --column can't both name {self.label_column!r}"
            raise UsageError(what)
        if self.label_depth is not None and self.label_depth < 1:
            raise UsageError(f"--label-depth must be at least 1, got {self.label_depth}")
        if self.multi_label == "":
            raise UsageError("--multi-label requires a separator, such as ';'")

    def _check_label_columns(self) -> None:
        for name, value in (
            ("--label-column", self.label_column),
            ("--multi-label", self.multi_label),
            ("--labels keep", self.labels == "keep" or None),
        ):
            if value is not None:
                raise UsageError(f"--label-columns and {name} can't be used together")
        labels = [name.strip() for name in self.label_columns]
        if len({*labels}) < len(labels):
            raise UsageError("--label-columns names a column twice")

    @property
    def writes_columns(self) -> bool:
        """Whether columns of a table become features."""
        return self.all_columns or bool(self.columns)

    @property
    def about_labels(self) -> bool:
        """Whether some of these make no sense without labels."""
        chosen = (self.labels, self.multi_label, self.label_column)
        return any(one is not None for one in chosen) or bool(self.class_map or self.only_classes)

    @property
    def names(self) -> Layout:
        """How features are called."""
        default = Layout.TFOD if self.annotations else Layout.TFDS
        return Layout(self.layout or default)
