"""Functions of Python in TensorFlow's graphs."""

import tensorflow as tf

plain = tf.autograph.experimental.do_not_convert
"""Marks a function of tensors as one without ``if`` or ``for`` over them."""
