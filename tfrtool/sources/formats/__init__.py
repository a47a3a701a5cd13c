"""Readers of the formats that `write` and `convert` share."""
