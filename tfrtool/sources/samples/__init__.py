"""Images that lie together with their labels: in Parquet, in WebDataset's tars, in arrays."""
