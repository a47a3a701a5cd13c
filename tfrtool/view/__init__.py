"""The report, and the local viewer: pages over what inspection finds; nothing is computed here."""
