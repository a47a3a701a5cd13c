"""Limits on untrusted input: nothing that comes out of a file is trusted.

All code that decodes or unpacks takes its limits from here. Anything over a limit is an error that
contains the limit and the value that was found.
"""

MAX_ARCHIVE_HEADER_BYTES = 16 * 1024
"""Size of an extended header of a tar archive. A path and a link target have at most 4,096 bytes
each; the rest is room for times and attributes."""

MAX_ZIP_DIRECTORY_BYTES = 1024**3
"""Size of the directory of a zip archive, which is read at once. Ten million members take this
much."""

FREE_UNPACKED_BYTES = 1024**3
"""What any archive may unpack to, however small it is. This much costs little disk space and
time."""

MAX_UNPACKED_RATIO = 100
"""Ratio of the unpacked size of an archive to its own size. Photographs hardly shrink, and bitmaps
of drawings shrink to a tenth. A hundredth is typical of decompression bombs."""

MAX_LIBRARY_MEMORY = 8 * 1024**3
"""Memory of a process in which a C++ library reads a file, in bytes: four of the longest
records."""

MAX_PARQUET_MEMORY = 4 * 1024**3
"""Address space of a process that reads Parquet, in bytes. Libraries take 0.4 GiB of it. A batch of
rows takes up to 16 MiB, or four times the longest value."""

MAX_SQL_MEMORY = 2 * 1024**3
"""Address space of a process that runs SQL, in bytes. Python, Arrow and DuckDB take half a GiB of
it. A query can read a column of a record of up to 300 MiB."""

MIN_SQL_MEMORY = 1024**3
"""Address space with which SQL is started, in bytes. With less than 0.7 GiB, libraries abort the
process as they start threads."""

MAX_DUCKDB_MEMORY = 10**9
"""Memory that DuckDB may use by its own count, in bytes. It writes nothing to disk."""

MAX_PATH_LENGTH = 4096
"""Length of a path in a table: PATH_MAX on Linux."""

MAX_ROW_BYTES = 1024 * 1024
"""Size of a row of a table. A path and a label take about a hundred bytes; columns of captions and
boxes take thousands."""

MAX_TEXT_ROW_BYTES = 256 * 1024 * 1024
"""Size of a record as a line of JSON or CSV. In base64 an image is a third longer."""

FREE_TEXT_BYTES = 128 * 1024 * 1024
"""What a compressed table of text may decompress to, however small its file is. Python reads ten
million bytes of short cells per second."""

FREE_ROWS = 1_000_000
"""Rows, lines or null values that a table may have, however small its file is. To make a record of
each takes 3 s, or 20 s from text."""

MAX_ROWS_PER_BYTE = 8
"""Rows of an Arrow or Parquet file per byte of it: a bit each. A run-end or a count of nulls can
claim billions."""

MAX_COLUMNS = 10_000
"""Columns of a table to convert or to write from. With 50,000 columns, a table of one row took
minutes."""

MAX_DIMENSIONS = 32
"""Dimensions of a tensor in a table. NumPy before 2 has the same limit; each is a list in Arrow."""

MAX_TENSOR_VALUES = 2**26
"""Values of a tensor whose shape is fixed. Where it is null, it takes as much memory."""

MAX_FEATURES = 131_072
"""Features of a record of more than 256 KiB, which could name a million. Each becomes a Python
object before the count is known. The widest known tables have about ten thousand columns."""

MAX_FIELDS = 1_048_576
"""Fields of one message that are read one by one. Two bytes can be a field, and each takes about
0.3 us. A record of a million strings has this many."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Size of a record that is decoded with --proto. A list of small numbers takes thirty times as much
in memory. The largest known messages, frames of several cameras, have five million bytes."""

MAX_INTEGER_BYTES = 256 * 1024 * 1024
"""Size of one list of integers in a record. Small integers take a byte each there, and eight bytes
in memory, together 2 GiB."""

MAX_FILES_LOOKED_INTO = 1000
"""Files of one directory whose first 4 KiB are read because their names don't show whether they are
shards. This takes hundredths of a second."""

MAX_FILES_OF_A_KIND = 100
"""Files with the same ending, or the same name but for numbers, that are read to find a shard. The
first shard stands for all of them. If a hundred photographs are not shards, the others aren't
either."""

MAX_RUN_FOLDERS = 10_000
"""Folders that are searched for TensorBoard's event files, at any depth."""

MAX_FOLDERS_BELOW = 1000
"""Folders below a directory that are searched for shards which are not included. This takes a tenth
of a second, or a second on a slow disk."""

MAX_MASKS_DRAWN = 100
"""Masks of one image that are drawn. Each may be a PNG as large as an image may be."""

MAX_OBJECTS_CHECKED = 100_000
"""Objects of one record that are checked. Each is a Python object. The most crowded images of
common datasets have some hundreds."""

MAX_IMAGE_BYTES = 512 * 1024 * 1024
"""Size of one encoded image. The most pixels that are decoded (89,478,485, as in Pillow) take 256
MiB as an RGB bitmap, and 512 MiB with 16 bits per channel. A larger file is not a photograph, but
would be held in memory."""

MAX_OBJECTS = 1_000_000
"""Objects in a store below a folder or pattern. Listing a billion objects would take hours."""

MAX_CLASSES = 100_000
"""Classes of a dataset. ImageNet-21k, the largest dataset in common use, has 21,841."""

MAX_CLASS_NAME = 1024
"""Length of a class name, in characters. Longer strings in records are not used as labels
either."""

MAX_CLASS_FILE_BYTES = 16 * 1024 * 1024
"""Size of a file of class names or a label map: 160 bytes for each of the most classes allowed."""

MAX_ANNOTATION_BYTES = 4 * 1024 * 1024
"""Size of an annotation file for one image: ten thousand objects in XML. Python's tree of the
smallest elements takes forty times as much."""

MAX_YAML_BYTES = 1024 * 1024
"""Size of a data.yaml. The names of 20,000 classes take half of it. Parsing this much takes fifteen
seconds."""

MAX_SCORES = 200_000_000
"""Images of an epoch times classes whose probabilities are kept for the mean average precision: 1
GB. COCO has 118,287 images and 80 classes."""

MAX_SHARDS = 100_000
"""Shards that metadata may name: 6 TiB at 64 MiB each, the smallest shard that TFDS makes."""

MAX_JSON_VALUES = 4_000_000
"""Values of a JSON metadata file: at worst about 400 MB in Python. A dataset_info.json has
hundreds, and one for each shard."""

MAX_PART_BYTES = 16 * 1024 * 1024
"""Size of one element of an annotation file, such as an object with its outline. Typical are
hundreds of bytes, and a megabyte for the run lengths of a large mask."""

MAX_IMAGE_OBJECTS = 100_000
"""Objects in one image, which are held at once. LVIS, and images of cells, have a thousand or
two."""

MAX_KEYPOINTS = 1_000
"""Key points of one object, and so of each object in its dataset. A body with hands and face has
133."""

MAX_ATTRIBUTES = 65_536
"""Characters of the attributes of one object, as JSON."""

MAX_OUTLINE_POINTS = 2**22
"""Points along an outline, five for each pixel. They are held at once, in about 250 MB. The border
of an image of 65,500 x 65,500 pixels has a third of this."""

MAX_MASK_PIXELS = 2**33
"""Pixels of all masks of one image together: a minute's work."""

MAX_MEMBER_BYTES = 16 * 1024 * 1024
"""Size of a report up to the end of its shards. 100,000 shards take 16 MB."""

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Size of a JSON or text metadata file. TFDS' largest features.json are below 1 MiB, and a
dataset_info.json with 100,000 shards has 1 MiB."""

MAX_SOURCE_BYTES = 256 * 1024
"""Size of Python source with a feature description. Its syntax tree can take 500 times as much
memory. Notebooks saved as source have some ten kilobytes."""

MAX_IMAGE_PIXELS = 89_478_485
"""Pixels of one image: Pillow's own threshold for a decompression bomb (2**28 / 3), 256 MiB in
RGB."""

MAX_SCANS = 500
"""Scans of a JPEG: where libjpeg-turbo's own fuzzers stop. Typical progressive JPEGs have ten."""

MAX_SCAN_PIXELS = 32 * MAX_IMAGE_PIXELS
"""Scans of a JPEG times its pixels. Each scan covers all pixels, even if it has few bytes."""

MAX_SEGMENTS = 10_000
"""Segments of a JPEG before its pixels, and after them. A profile takes up to 255, a photograph
about ten."""

MAX_EXIF_BYTES = 1024 * 1024
"""Size of Exif data. One JPEG segment holds 64 KiB; Pillow joins many, in quadratic time."""

MAX_TAGS = 1000
"""Tags of a TIFF, or of Exif data. Cameras write about a hundred. Pillow before 13 reads each of
them, even if they overlap."""

MAX_STRIPS = 100_000
"""Strips or tiles of a TIFF. Each costs about 15 us. One per row is usual, and a JPEG made
of it has at most 65,500 rows."""

MAX_CHUNKS = 100_000
"""Chunks of a PNG, or comment blocks of a GIF, about 5 us each. libpng writes pixels in chunks of 8
KiB, at most 65,536 of them."""

MAX_METADATA_CHUNKS = 1000
"""Chunks of a PNG that are not pixels. A profile among them may unpack to 1 MiB. So may texts;
Pillow stops when all of them exceed 64 MiB."""

MAX_FRAMES = 10_000
"""Frames of an animation. Only the first is decoded here; TensorFlow decodes all frames of a
GIF."""

MAX_HELD_PIXELS = 8 * MAX_IMAGE_PIXELS
"""Pixels of all frames of a GIF that TensorFlow decodes, or of all masks of a record: a byte of
memory each. A few kilobytes can claim millions of them. Elsewhere only a GIF's first frame is
decoded."""

MAX_STRAY_BYTES = 64 * 1024
"""Stray bytes in the header of a JPEG, GIF or PPM. Pillow reads them one by one."""

MAX_SLOW_BYTES = 8 * 1024 * 1024
"""Size of a text PPM, a PPM of unusual depth, or a run-length encoded BMP. Pillow decodes these in
Python, about a million bytes per second."""

MAX_FAULTS = 10_000
"""Faults of one shard that a report lists, at about a hundred bytes each. All are counted."""

MAX_LISTED = 100_000
"""Images that a report lists as skipped, as converted, and so on. All are counted. A longer report
would exceed the size of metadata that can be read."""


def unpacked_limit(packed: int) -> int:
    """Return how many bytes an archive of ``packed`` bytes may unpack to."""
    return max(FREE_UNPACKED_BYTES, MAX_UNPACKED_RATIO * packed)


def unpacked_text_limit(packed: int) -> int:
    """Return how many bytes a table of text in ``packed`` bytes may decompress to."""
    return max(FREE_TEXT_BYTES, MAX_UNPACKED_RATIO * packed)


def row_limit(size: int, rows_per_byte: int = 1) -> int:
    """Return how many rows a table may have whose file has ``size`` bytes."""
    return max(FREE_ROWS, rows_per_byte * size)
