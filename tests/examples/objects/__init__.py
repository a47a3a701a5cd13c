"""Tests of the objects in images, and of the files beside records that say their names."""
