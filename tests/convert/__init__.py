"""Tests of changing, converting and copying records."""
