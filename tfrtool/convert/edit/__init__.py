"""Changing the records of a dataset, and adding some to it."""
