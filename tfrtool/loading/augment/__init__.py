"""Random changes of images."""
