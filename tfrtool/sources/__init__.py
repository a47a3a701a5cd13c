"""Where the items of a dataset come from."""
