"""What becomes of difficult image files that other software wrote: the table that tests hold to.

With each file is what the manifest that comes with them says: whether Pillow loads it, and
whether ``tf.io.decode_jpeg`` reads pixels of three dimensions from it.
"""

from __future__ import annotations

__all__ = ["AWKWARD", "KEPT"]

KEPT = "kept"

_BOMB = "claims more than 178,956,970 pixels"
_DECODES_NOT = "can't be decoded: "

AWKWARD: dict[str, tuple[str, bool, bool]] = {
    # file: (kept, the reason of a conversion, or the problem), Pillow loads it, TensorFlow reads it
    "pillow__hopper.jpg": (KEPT, True, True),
    "pillow__hopper_gray.jpg": (KEPT, True, True),
    "pillow__pil_sample_cmyk.jpg": (KEPT, True, True),
    "pillow__truncated_app14.jpg": (KEPT, True, True),
    "pillow__truncated_jpeg.jpg": (
        _DECODES_NOT + "the image data is truncated",
        False,
        False,
    ),
    "pillow__broken_exif_dpi.jpg": (KEPT, True, True),
    "pillow__truncated_exif_dpi.jpg": (KEPT, True, True),
    "pillow__hopper_bad_exif.jpg": (KEPT, True, True),
    "pillow__invalid-exif.jpg": (KEPT, True, True),
    "pillow__multiple_exif.jpg": (KEPT, True, True),
    "pillow__exif_typeerror.jpg": (KEPT, True, True),
    **{
        f"pillow__hopper_orientation_{turn}.jpg": (f"EXIF orientation {turn}", True, True)
        for turn in range(2, 9)
    },
    "pillow__hopper_16bit_qtables.jpg": (KEPT, True, True),
    "pillow__junk_jpeg_header.jpg": (KEPT, True, True),
    "pillow__jpeg_ff00_header.jpg": (KEPT, True, True),
    "pillow__icc-after-SOF.jpg": (KEPT, True, True),
    "pillow__app13.jpg": (KEPT, True, True),
    "pillow__rgb.jpg": (KEPT, True, True),
    "pillow__sugarshack_bad_mpo_header.jpg": (KEPT, True, True),
    "pillow__ultrahdr.jpg": (
        _DECODES_NOT + "the image data is truncated",
        False,
        False,
    ),
    "pillow__flower.jpg": (KEPT, True, True),
    "pillow__jfif_unit_cm.jpg": (KEPT, True, True),
    "pillow__xmp_no_prefix.jpg": (KEPT, True, True),
    "pillow__orientation_rectangle.jpg": ("EXIF orientation 8", True, True),
    "pillow__hopper.png": ("not a JPEG but PNG", True, True),
    "pillow__hopper_16bit.pgm": ("not a JPEG but PPM", True, False),
    "pillow__bw_gradient.png": ("not a JPEG but PNG", True, True),
    "pillow__pil123p.png": ("not a JPEG but PNG", True, True),
    "pillow__transparent.png": ("not a JPEG but PNG", True, True),
    "pillow__p_trns_single.png": ("not a JPEG but PNG", True, True),
    "pillow__apng_mode_16bit.png": ("not a JPEG but PNG", True, True),
    "pillow__apng_delay.png": ("not a JPEG but PNG", True, True),
    "pillow__tiff_16bit_RGB_target.png": ("not a JPEG but PNG", True, True),
    "pillow__truncated_image.png": (_DECODES_NOT + "the image data is truncated", False, False),
    "pillow__broken.png": ("not an image in a known format", False, False),
    # The manifest's Pillow loads these two; the one that was looked at here does not.
    "pillow__broken_data_stream.png": (
        _DECODES_NOT + "the image data is damaged",
        True,
        False,
    ),
    "pillow__truncated_end_chunk.png": (_DECODES_NOT + "the image data is truncated", True, False),
    "pillow__png_decompression_dos.png": (
        "can't be opened: a text in the PNG file is too large",
        False,
        True,
    ),
    "pillow__exif.png": ("not a JPEG but PNG", True, True),
    "pillow__hopper_idat_after_image_end.png": ("not a JPEG but PNG", True, True),
    "pillow__unknown_compression_method.png": ("not an image in a known format", False, True),
    "pillow__hopper.gif": ("not a JPEG but GIF", True, True),
    "pillow__dispose_bgnd.gif": ("not a JPEG but GIF", True, False),
    "pillow__zero_width.gif": ("not an image in a known format", False, False),
    "pillow__decompression_bomb.gif": (_BOMB, False, False),
    "pillow__decompression_bomb_extents.gif": ("not a JPEG but GIF", True, False),
    "pillow__no_palette.gif": ("not a JPEG but GIF", True, False),
    "pillow__hopper.bmp": ("not a JPEG but BMP", True, False),
    "pillow__bmp_g_pal8rle.bmp": ("not a JPEG but BMP", True, False),
    "pillow__bmp_g_rgb32.bmp": ("not a JPEG but BMP", True, False),
    "pillow__bmp_b_reallybig.bmp": (_BOMB, False, False),
    "pillow__bmp_b_badwidth.bmp": (_BOMB, False, False),
    "pillow__bmp_q_rgb24jpeg.bmp": (
        "can't be opened: Unsupported BMP pixel depth (0)",
        False,
        False,
    ),
    "pillow__hopper.webp": ("not a JPEG but WEBP", True, False),
    "pillow__transparent.webp": ("not a JPEG but WEBP", True, False),
    "pillow__avif_hopper.avif": ("not a JPEG but AVIF", True, False),
    "pillow__hopper.tif": ("not a JPEG but TIFF", True, False),
    "pillow__hopper_orientation_6.webp": ("not a JPEG but WEBP", True, False),
    "renamed__png_named.jpg": ("not a JPEG but PNG", True, True),
    "renamed__gif_named.jpg": ("not a JPEG but GIF", True, True),
    "renamed__bmp_named.jpg": ("not a JPEG but BMP", True, False),
    "renamed__webp_named.jpg": ("not a JPEG but WEBP", True, False),
    "renamed__animated_gif_named.jpeg": ("not a JPEG but GIF", True, False),
    "renamed__tiff_named.jpg": ("not a JPEG but TIFF", True, False),
    "renamed__jpeg_named.png": (KEPT, True, True),
}
