"""Files that hold many images with their labels: a module for each kind."""
