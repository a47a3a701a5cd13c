"""The first bytes of Arrow files, apart from what needs pyarrow."""

FILE, STREAM, FEATHER_1 = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
MAGICS = (FILE, STREAM, FEATHER_1)


def is_arrow(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of an Arrow file or stream."""
    return head.startswith(MAGICS)
