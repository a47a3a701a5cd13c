"""What the files of a conversion hold together: their columns, class names and images."""

from collections.abc import Sequence
from dataclasses import replace

from tfrtool.convert.carried import CarriedMetadata
from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.convert_notes import undeclared_notes
from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.convert_task import read_rows
from tfrtool.convert.formats.folder_columns import without_folders
from tfrtool.convert.formats.record_format import Content, Scan
from tfrtool.convert.formats.schema_types import ChosenTypes, apply_schema, values_of
from tfrtool.convert.formats.source_scan import ScannedFiles
from tfrtool.convert.formats.tree_merge import merge_trees
from tfrtool.errors import SchemaError, UsageError
from tfrtool.examples.arrow.columns import Columns, DecodedColumns
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Field, Kind, Struct, Values, leaves_of, with_info
from tfrtool.examples.roles import is_image
from tfrtool.examples.tfds_metadata import LABEL_SIGNS, labels_file
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.flat_fields import sequences_of_tree, tree_of_flat
from tfrtool.features.stored_layout import stored_dtype
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.records.tally import Tally
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job_report import Faults

_SAMPLED_FILES, _SAMPLED_ROWS = 8, 64
"""Number of files, and of rows in each, that show whether a column has images."""


def merge_contents(request: ConvertRequest, scanned: ScannedFiles) -> tuple[Content, list[str]]:
    """Return what files hold together, and notes on types; of the columns the selected, or all.

    Raises:
        SchemaError: the files don't agree on a type.
        SourceError: float32 would change whole numbers, and no cast asks for it.
        UsageError: a column is selected or cast that isn't there.
    """
    options, types, scans = request.options, request.types, scanned.scans
    first, is_exact = scans[0].content, _is_exact(scanned, options)
    if any(scan.content.declared != first.declared for scan in scans):
        raise SchemaError("some of the files have a schema next to them, others don't")
    select: Sequence[str] = () if options.explode else options.select or ()
    if types.schema is not None:
        select = [spec.name for spec in types.schema.features]
    columns, uncast, notes = _columns(scanned, select, options, types)
    columns.select(types.casts)
    if LABEL_NAME not in columns.names:
        select = [name for name in select if name != LABEL_NAME]
    is_selected = bool(select)
    if is_selected:
        select = without_folders(select, columns, request.files.paths)
    if types.schema is not None:
        columns = apply_schema(columns.select(select), types.schema, types.casts)
    has_types = bool(types.casts) or types.schema is not None
    is_changed = is_selected or bool(types.casts) or options.lists
    columns = columns.select(select) if is_selected else columns
    content = Content(
        columns=columns,
        exact=is_exact and not (is_selected or types.casts),
        class_names=_class_names(scans),
        class_files=first.class_files,
        tfds=None if is_changed else first.tfds,
        declared=first.declared,
        native=_native(columns, uncast) if has_types and uncast is not None else None,
    )
    if columns.kind is not PayloadKind.EXAMPLE:
        return content, notes
    if scanned.format.payloads:
        content = _with_metadata(content, request.files.folders, tfds=not is_changed)
        return replace(content, images=_images(scanned, content)), notes
    return _with_roles(replace(content, images=_images(scanned, content))), notes


def _with_roles(content: Content) -> Content:
    """Return the content of a table whose tree says which fields are labels and images."""
    if type(content.columns) is not FeatureColumns:
        known = content.columns.names
        names = {name: some for name, some in content.class_names.items() if name in known}
        return replace(content, class_names=names)
    class_names: dict[str, tuple[str, ...]] = {}

    def with_role(path: str, values: Values) -> Values:
        if values.kind is Kind.BYTES and path in content.images:
            return replace(values, kind=Kind.IMAGE)
        is_label = values.kind is Kind.LABEL or stored_dtype(values) is DType.INT64
        if path not in content.class_names or not is_label or values.shape:
            return values
        class_names[path] = content.class_names[path]
        return Values(kind=Kind.LABEL, info={**values.info, "names": class_names[path]})

    root = with_info(content.columns.root, with_role)
    return replace(content, columns=FeatureColumns.of(root), class_names=class_names)


def _is_exact(scanned: ScannedFiles, options: ConvertOptions) -> bool:
    """Return whether rows have the payloads; `UsageError` if they should, and can't."""
    is_table = not scanned.format.payloads
    has_payloads = is_table and all(scan.content.exact for scan in scanned.scans)
    if options.exact and is_table and not has_payloads:
        hint = "convert it without --exact"
        raise UsageError("--exact keeps payloads, and a table has none", hint=hint)
    return options.exact or has_payloads


def _columns(
    scanned: ScannedFiles, select: Sequence[str], options: ConvertOptions, types: ChosenTypes
) -> tuple[Columns, Columns | None, list[str]]:
    """Return the columns of all files, those of payloads before a cast, and notes."""
    source_format, scans, casts = scanned.format, scanned.scans, dict(types.casts)
    content = scans[0].content
    rows = [scan for scan in scans if scan.rows] or scans[:1]
    is_tree = any(type(scan.content.columns) is FeatureColumns for scan in rows)
    if isinstance(content.columns, DecodedColumns) and not is_tree:
        return _decoded_columns(scans, options), None, []
    columns: Columns = rows[0].content.columns
    needs_tree = is_tree or bool(casts) or types.schema is not None
    differ = any(scan.content.columns != columns for scan in rows)
    if not source_format.payloads:
        needs_tree = needs_tree or differ or options.lists
    elif not is_tree:
        columns = scanned.fold.table_columns(lists=options.lists)
    if columns.kind is not PayloadKind.EXAMPLE and not is_tree:
        if casts or (options.lists and not source_format.payloads):
            flag = "--cast" if casts else "--lists"
            raise UsageError(f"{flag} applies to tf.train.Examples, not to {columns.kind.title}")
        if source_format.payloads:
            return columns, columns, []
        if differ and columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
            tree, notes = merge_trees(source_format, rows, (), {}, lists=False)
            return sequences_of_tree(tree.root), None, notes
        return _alike(rows), None, []
    if not needs_tree:
        return columns, columns if source_format.payloads else None, []
    if source_format.payloads and not is_tree:
        columns = FeatureColumns.of(tree_of_flat(columns))
        rows = [replace(rows[0], content=replace(content, columns=columns))]
    is_typed = source_format.payloads or all(scan.content.exact for scan in scans)
    is_typed |= bool(source_format.widening) and content.declared
    if types.schema is not None and not is_typed:
        specs = types.schema.features
        dtypes = {one.name: one.dtype for one in specs if one.dtype}
        casts = {name: values_of(dtype) for name, dtype in dtypes.items()} | casts
    tree, notes = merge_trees(source_format, rows, select, casts, lists=options.lists)
    if not source_format.payloads:
        return tree, None, notes
    notes += undeclared_notes(scanned.fold, tree)
    return tree, columns, notes


def _native(columns: Columns, uncast: Columns) -> Columns | None:
    """Return columns with their types before a cast; None if these are the same."""
    if isinstance(columns, FeatureColumns) and isinstance(uncast, FeatureColumns):
        known = uncast.select(columns.names).root.fields
        fields = columns.root.fields.items()
        native: Columns = FeatureColumns.of(
            Struct({name: _with_types(item, known[name]) for name, item in fields})
        )
    else:
        types = {(one.key, one.is_list): one for one in uncast.columns}
        pairs = ((one, types[one.key, one.is_list]) for one in columns.columns)
        found = (
            known if known.dtype is None else replace(one, item=_with_types(one.item, known.item))
            for one, known in pairs
        )
        native = replace(columns, columns=tuple(found))
    return None if native == columns else native


def _with_types(item: Field, known: Field) -> Field:
    """Return the lists and structs of a field, with the values of another."""
    types = {leaf.path: leaf.values for leaf in leaves_of(known)}

    def typed(path: str, values: Values) -> Values:
        return replace(values, kind=types[path].kind, dtype=types[path].dtype)

    return with_info(Struct({"": item}), typed).fields[""]


def _class_names(scans: Sequence[Scan]) -> dict[str, tuple[str, ...]]:
    """Return the class names of all files; `SchemaError` if they differ."""
    class_names: dict[str, tuple[str, ...]] = {}
    for scan in scans:
        for name, names in scan.content.class_names.items():
            if class_names.setdefault(name, names) != names:
                what = f"its class names of {name!r} differ from the other files' names"
                raise SchemaError(what, path=scan.path)
    return class_names


def _with_metadata(content: Content, folders: Sequence[AnyPath], *, tfds: bool) -> Content:
    """Return the content of payloads with the class names and features.json next to them."""
    carried, class_names = CarriedMetadata(folders), dict(content.class_names)
    for name in _label_names(content.columns):
        files = (labels_file(name, sign) for sign in LABEL_SIGNS)
        text = next((carried.labels[one] for one in files if one in carried.labels), "")
        if text:
            lines = (line.strip() for line in text.split("\n"))
            class_names[name] = tuple(filter(None, lines))
    return replace(
        content,
        class_names=class_names,
        class_files=carried.labels,
        tfds=carried.features if tfds else None,
    )


def _label_names(columns: Columns) -> Sequence[str]:
    """Return the columns of whole numbers, which may have names of classes."""
    if isinstance(columns, FeatureColumns):
        return columns.numbers
    named = zip(columns.names, columns.columns, strict=True)
    return [name for name, column in named if column.dtype is DType.INT64]


def _alike(scans: Sequence[Scan]) -> Columns:
    """Return the columns that all files have; `SchemaError` if they differ."""
    first = scans[0]
    for scan in scans:
        if scan.content.columns != first.content.columns:
            what = f"its columns differ from the columns of {first.path.name}"
            raise SchemaError(what, path=scan.path)
    return first.content.columns


def _decoded_columns(scans: Sequence[Scan], options: ConvertOptions) -> Columns:
    """Return the columns of files that hold the same messages or the same tree of features.

    Raises:
        SchemaError: they hold different ones.
        UsageError: an option that applies to features alone.
    """
    columns = _alike(scans)
    for name in ("cast", "lists", "schema"):
        if getattr(options, name):
            hint = "use --as-stored when you make the table"
            raise UsageError(f"--{name} doesn't apply to nested columns", hint=hint)
    return columns


def _images(scanned: ScannedFiles, content: Content) -> tuple[str, ...]:
    """Return the columns that have an encoded image in each of the first records of some files."""
    columns, seen = content.columns, set[str]()
    if isinstance(columns, FeatureColumns):
        is_known = scanned.format.payloads or all(scan.table is None for scan in scanned.scans)
        if is_known or type(columns) is not FeatureColumns:
            return columns.images
        fields = zip(columns.names, columns.root.fields.values(), strict=True)
        names = [name for name, item in fields if item == Values(kind=Kind.BYTES)]
    else:
        named = zip(columns.names, columns.columns, strict=True)
        strings = [(name, one) for name, one in named if one.dtype is DType.STRING]
        names = [name for name, one in strings if not one.is_text and one.is_single]
    for scan in [scan for scan in scanned.scans if scan.rows][:_SAMPLED_FILES] if names else ():
        piece = scan.piece(0, min(scan.rows, _SAMPLED_ROWS))
        chosen = replace(content, columns=content.columns.select(names), exact=False)
        for batch in read_rows(scanned.format, [piece], chosen, Tally(), Faults()):
            values = {one: batch.column(one).drop_null().to_pylist() for one in names}
            names = [one for one in names if all(map(is_image, values[one]))]
            seen |= {one for one in names if values[one]}
    return tuple(one for one in names if one in seen)
