"""One file a command: parse, call one function, render, exit."""
