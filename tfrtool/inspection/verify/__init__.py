"""Whether shards and datasets are whole."""
