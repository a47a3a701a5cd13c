"""Any record: from one format, place or number of shards into another."""
