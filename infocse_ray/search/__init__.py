"""Searching a corpus by its vectors, on Lance, from the command line, Python and a local page."""
