"""Write, inspect and train from TFRecord files."""

__version__ = "0.1.0"
