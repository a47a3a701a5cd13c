"""Generated code for the messages in TFRecord files; see example.proto."""
