"""Commands that make a dataset of records, by a job."""
