"""Formats of records, one module each."""
