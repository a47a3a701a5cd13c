"""From a source to a plan, to shards, to metadata and a report."""
