"""Meaning: Example and SequenceExample, Schema, and TFDS metadata."""
