"""From a dataset on disk to tf.data."""
