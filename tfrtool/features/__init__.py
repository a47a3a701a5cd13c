"""What the features of records mean: a tree of typed fields, and how records store it."""
