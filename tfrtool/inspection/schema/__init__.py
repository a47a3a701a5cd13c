"""The schema of several shards."""
