"""TFDS' own datasets."""
