"""Measuring the loader."""
