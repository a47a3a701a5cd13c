"""Tests of the kinds of annotations that are read."""
