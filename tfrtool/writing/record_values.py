"""What the record of an image holds: its bytes, its labels, and what was said of it beside."""

from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation
from tfrtool.examples.objects.record_features import Layout, Masks, WrittenImage
from tfrtool.images.audit import UPRIGHTING, RenderedImage
from tfrtool.images.decoder import ImageFrame, RefusedImageError, read_frame
from tfrtool.images.masks import mask_bitmap, mask_png, moved_mask
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.sources.items import Source

_NOTHING = ExtraFeatures()
_BACK = {6: 8, 8: 6}
"""The orientation that, undone, puts another back; the others are their own."""


def beside_of(source: Source, position: int) -> ExtraFeatures:
    """Return what is written of an item beside its bytes, its name and its label."""
    return ExtraFeatures.unpack(source.beside[position]) if source.beside else _NOTHING


def labels_of(source: Source, position: int) -> list[str]:
    """Return the names of an item's labels, or of the objects in it: each as often as it occurs."""
    if source.features.has_objects:
        annotation = beside_of(source, position).annotation
        objects = annotation.objects if annotation else ()
        return [source.labels[one.label] for one in objects]
    return [*source.features.names(source.items[position].label)]


def misfit(source: Source, position: int, data: bytes) -> str | None:
    """Return why an image, given with its bytes, is not the one that its annotations are for."""
    annotation = beside_of(source, position).annotation
    if annotation is None:
        return None
    try:
        frame = read_frame(data)
    except RefusedImageError as error:
        return str(error)
    return annotation.problem(frame.width, frame.height, frame.orientation)


def payload_of(
    source: Source,
    position: int,
    numbers: dict[str, int],
    data: bytes,
    rendered: RenderedImage | None,
    recipe: ImageRecipe,
) -> bytes:
    """Return the record of an image whose features are not just the usual three.

    Args:
        source: where it comes from.
        position: of its item.
        numbers: those of the classes, by their names.
        data: the bytes of its file.
        rendered: the image that is written instead of them, if there is one.
        recipe: how that was made.
    """
    item, features, beside = source.items[position], source.features, beside_of(source, position)
    masks: list[bytes] = []
    if features.layout is Layout.TFDS and not features.has_objects and rendered is None:
        image = WrittenImage(data, "jpeg", 0, 0)  # whose size is of no interest
    else:
        frame = read_frame(data)
        image = _written(data, frame, rendered, recipe)
        if beside.annotation is not None:
            annotation = _moved(beside.annotation, frame, image, rendered, recipe)
            beside = beside._replace(annotation=annotation)
            if features.masks is Masks.PNG and "segmentation" in features.optional:
                masks = [
                    mask_png(mask_bitmap(one.segmentation, image.width, image.height))
                    for one in annotation.objects
                ]
    return encode_example(features.values(image, item.key, item.label, numbers, beside, masks))


def _written(
    data: bytes, frame: ImageFrame, rendered: RenderedImage | None, recipe: ImageRecipe
) -> WrittenImage:
    if rendered is None:
        return WrittenImage(data, frame.format.lower(), frame.height, frame.width)
    kind = "jpeg" if recipe.encode is Encode.KEEP else recipe.encode.value
    return WrittenImage(rendered.data, kind, rendered.height, rendered.width)


def _moved(
    annotation: ImageAnnotation,
    frame: ImageFrame,
    image: WrittenImage,
    rendered: RenderedImage | None,
    recipe: ImageRecipe,
) -> ImageAnnotation:
    """Return annotations for the image as it is written."""
    turned = rendered is not None and (recipe.orient or frame.format == "TIFF")
    turned = turned and frame.orientation in UPRIGHTING
    upright = annotation.is_upright(frame.width, frame.height, frame.orientation)
    turn = 1
    if frame.orientation in UPRIGHTING and turned != upright:
        turn = frame.orientation if turned else _BACK.get(frame.orientation, frame.orientation)
    moved = annotation.moved(turn, image.width, image.height)
    if moved is annotation:
        return moved
    objects = []
    for one in moved.objects:
        outline = one.segmentation
        if outline.startswith("{"):
            outline = moved_mask(outline, turn, image.width, image.height)
        objects.append(one._replace(segmentation=outline))
    return moved._replace(objects=tuple(objects))
