"""The limits of what is read: everything that comes out of a file is untrusted.

Every path that decodes or unpacks takes its limits from here. What is over a limit is an error
that names the limit and the number that was found.
"""

from typing import Generic, TypeVar

MAX_ARCHIVE_HEADER_BYTES = 16 * 1024
"""Of an extended header of a tar archive: a path and a link's target have 4,096 bytes each at most,
and as much again is left for times and attributes."""

MAX_ZIP_DIRECTORY_BYTES = 1024**3
"""Of the directory of a zip archive, which is read at once: ten million members take that."""

FREE_UNPACKED_BYTES = 1024**3
"""What an archive may unpack to however small it is: no disk and no hour is lost by that."""

MAX_UNPACKED_RATIO = 100
"""Of the bytes that an archive's images unpack to and the archive's own. Photographs hardly shrink,
and bitmaps of drawings to a tenth; a hundredth is what bombs are made of."""

MAX_LZMA_MEMORY = 256 * 1024 * 1024
"""Of one unpacker of LZMA, in bytes; xz' highest preset has a dictionary of 64 MiB."""

MAX_LIBRARY_MEMORY = 8 * 1024**3
"""Of a process in which a library of C++ reads a file, in bytes: four of the longest records."""

MAX_PARQUET_MEMORY = 4 * 1024**3
"""Of the address space of a process that reads Parquet, in bytes: libraries take 0.4 GiB of it, and
a batch of rows up to 16 MiB, or the longest value four times."""

MAX_SQL_MEMORY = 2 * 1024**3
"""Address space of a process that runs SQL, in bytes. Python, Arrow and DuckDB take half a GiB of
it; a record of which a query reads one column may have 300 MiB."""

MAX_DUCKDB_MEMORY = 10**9
"""What DuckDB may hold of that by its own count, in bytes; nothing goes to a disk instead."""

MAX_PATH_LENGTH = 4096
"""Of a path in a table, or that a link in an archive leads to: PATH_MAX of Linux."""

MAX_ROW_BYTES = 1024 * 1024
"""Of a row of a table. A path and a label take a hundred, columns of captions and boxes some
thousand."""

MAX_TEXT_ROW_BYTES = 256 * 1024 * 1024
"""Of a record as a line of JSON or CSV: an image of some megabytes is a third longer in base64."""

MAX_COLUMNS = 10_000
"""Of a table to convert or to write from. With 50,000, a table of one row took minutes."""

MAX_FEATURES = 131_072
"""Of a record of more than 256 KiB, which could name a million: each is an object of Python before
it is known to be one too many. The widest tables that are known to us have some ten thousand."""

MAX_FIELDS = 1_048_576
"""Fields of one message that are read one by one: two bytes can be a field, and each takes some
0.3 us. A record of a million strings has as many."""

MAX_FILES_LOOKED_INTO = 1000
"""Of one directory, files whose names don't tell whether they are shards, and whose first 4 KiB do:
some hundredths of a second."""

MAX_FILES_OF_A_KIND = 100
"""Of those with one ending, or alike but for numbers, of which the first shard stands for all.
Where a hundred photographs are none, so are the others."""

MAX_FOLDERS_BELOW = 1000
"""Folders below a directory that are searched for shards which are not included: a tenth of a
second, or a second on a slow disk."""

MAX_FONTS = 2000
"""Of the system, looked into for letters: one takes a millisecond or less."""

MAX_MASKS_DRAWN = 100
"""Of the objects in one image: each may be a PNG as large as an image may be."""

MAX_OBJECTS_CHECKED = 100_000
"""Of one record, objects that are looked at: each is an object of Python. The most crowded images
of the common sets have some hundreds."""

MAX_IMAGE_BYTES = 512 * 1024 * 1024
"""Of one encoded image, wherever it comes from. The most pixels that are decoded (89,478,485, as in
Pillow) take 256 MiB as a plain bitmap in RGB, 512 MiB with 16 bits a channel; a file that is larger
than that is no photograph, but would be held in memory whole."""

MAX_OBJECTS = 1_000_000
"""Objects of a store that a folder or a pattern may mean: a billion would be listed for hours."""

MAX_CLASSES = 100_000
"""Classes of a dataset; ImageNet-21k, the largest set in common use, has 21,841."""

MAX_CLASS_NAME = 1024
"""Of a class's name, in characters; longer strings in records are taken for no labels, too."""

MAX_CLASS_FILE_BYTES = 16 * 1024 * 1024
"""Of a file of class names, or of a label map: 160 bytes for each of that many classes."""

MAX_LABEL_MAP_WORDS = 2_000_000
"""Of a label map: words, signs and texts. An item with a number and two names has eleven."""

MAX_LABEL_MAP_WORD = 64 * 1024
"""Of a word or a text in a label map, in characters: escapes take four for one."""

MAX_ANNOTATION_BYTES = 4 * 1024 * 1024
"""Of a file that tells of one image: ten thousand objects in XML. Python's tree of the smallest
elements takes forty times as much."""

MAX_YAML_BYTES = 1024 * 1024
"""Of a data.yaml: the names of 20,000 classes take half of it. Parsing it takes fifteen seconds."""

MAX_SCORES = 200_000_000
"""Images of an epoch times classes whose probabilities are kept to tell how well they order the
images: 1 GB. The 118,287 images of COCO have 80 classes."""

MAX_SHARDS = 100_000
"""Shards that metadata may name: at 64 MiB each, the least that TFDS makes them, 6 TiB."""

MAX_JSON_VALUES = 4_000_000
"""Of a JSON file of metadata: about 400 MB in Python at worst; a dataset_info.json has some
hundreds, and one for each shard."""

MAX_PART_BYTES = 16 * 1024 * 1024
"""Of one element of an annotation file, such as an object with its outline: some hundred bytes, and
a megabyte for the run lengths of a large mask."""

MAX_IMAGE_OBJECTS = 100_000
"""Objects in one image: they are held at once. LVIS and crowds of cells have a thousand or two."""

MAX_KEYPOINTS = 1_000
"""Of one object, and so of each in its dataset. A whole body with hands and face has 133."""

MAX_OUTLINE_POINTS = 2**22
"""Along an outline, five for each pixel; they are held at once, in some 250 MB. That is the rim of
an image of 65,500 x 65,500 pixels three times."""

MAX_MASK_PIXELS = 2**33
"""Of all masks of one image together: a minute's work."""

MAX_MEMBER_BYTES = 16 * 1024 * 1024
"""Of a report, up to the end of what it says of the shards, of which 100,000 take 16 MB."""

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Of a JSON or text file of metadata. TFDS' largest features.json are below 1 MiB, and a
dataset_info.json with 100,000 shards has 1 MiB."""

MAX_STREAM_COPY = 256 * 1024 * 1024
"""Of a stream, what is also written to a temporary file, to tell the cause of a fault from the
bytes around it: twice a shard of the usual size. A stream need not end, and the file may be in
memory."""

MAX_IMAGE_PIXELS = 89_478_485
"""Of one image: Pillow's own threshold for a decompression bomb (2**28 / 3), 256 MiB in RGB."""

MAX_SCANS = 500
"""Of a JPEG: where libjpeg-turbo's own fuzzers stop; usual progressive JPEGs have ten."""

MAX_SCAN_PIXELS = 32 * MAX_IMAGE_PIXELS
"""Scans of a JPEG times its pixels: each scan goes over all of them, however few bytes it has."""

MAX_SEGMENTS = 10_000
"""Of a JPEG before its pixels, and behind: a profile takes up to 255, a photograph about ten."""

MAX_EXIF_BYTES = 1024 * 1024
"""Of Exif data. One segment of a JPEG holds 64 KiB; Pillow joins many, by the square of them."""

MAX_TAGS = 1000
"""Of a TIFF, or of Exif data: cameras write about a hundred. Pillow before 13 reads each of them,
however far they overlap."""

MAX_STRIPS = 100_000
"""Strips or tiles of a TIFF, each of which costs about 15 us; one for each row is usual, and a
JPEG made of it has at most 65,500 rows."""

MAX_CHUNKS = 100_000
"""Chunks of a PNG, or blocks of a GIF's comments, about 5 us each. libpng writes pixels in chunks
of 8 KiB: 65,536 of them in the largest file."""

MAX_METADATA_CHUNKS = 1000
"""Of the chunks of a PNG those that hold no pixels: a profile among them may unpack to 1 MiB.
Texts may do so, too, and Pillow stops when all of them are larger than 64 MiB."""

MAX_FRAMES = 10_000
"""Of an animation, of which only the first is decoded here; TensorFlow decodes all of a GIF."""

MAX_HELD_PIXELS = 8 * MAX_IMAGE_PIXELS
"""Of all frames of a GIF together where TensorFlow decodes it: a byte of memory each, and a few
kilobytes of the file for millions of them. Elsewhere only the first frame is decoded."""

MAX_STRAY_BYTES = 64 * 1024
"""In the header of a JPEG, GIF or PPM what belongs to nothing: Pillow reads it byte by byte."""

MAX_SLOW_BYTES = 8 * 1024 * 1024
"""Of a PPM in text or of unusual depth, and of a run-length encoded BMP: Pillow decodes these in
Python, about a million bytes a second."""

MAX_FAULTS = 10_000
"""Of one shard, faults that a report lists, some hundred bytes each; all are counted."""

MAX_LISTED = 100_000
"""Images that a report lists as left out, as converted, and so on; all are counted. A report with
more of them would be larger than metadata that is read."""

_Entry = TypeVar("_Entry")


class FirstOf(Generic[_Entry]):
    """Entries of which the first are kept, and all are counted."""

    def __init__(self, limit: int = MAX_FAULTS) -> None:
        self._limit = limit
        self.kept: list[_Entry] = []
        self.count = 0

    def add(self, entry: _Entry) -> None:
        """Count an entry, and keep it while there is room."""
        self.count += 1
        if len(self.kept) < self._limit:
            self.kept.append(entry)

    @property
    def more(self) -> int:
        """How many are counted, but not kept."""
        return self.count - len(self.kept)

    def merge(self, other: "FirstOf[_Entry]") -> None:
        """Count the entries of another, too, and keep its first while there is room."""
        self.count += other.count
        self.kept += other.kept[: self._limit - len(self.kept)]


def unpacked_limit(packed: int) -> int:
    """Return how many bytes may come out of an archive of ``packed`` bytes."""
    return max(FREE_UNPACKED_BYTES, MAX_UNPACKED_RATIO * packed)
