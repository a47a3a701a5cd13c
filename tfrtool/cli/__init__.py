"""The command line: one file a command; parse, call one function, render, exit."""

from tfrtool.cli.app import main

__all__ = ["main"]
