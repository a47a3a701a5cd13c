"""A dataset on disk, and which of its records can be used."""
