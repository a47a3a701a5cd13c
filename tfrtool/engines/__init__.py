"""Where work runs: threads and processes of this machine."""
