"""Commands that write a dataset from records, as a job."""
