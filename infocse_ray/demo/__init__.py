"""The demo: its encoder, and its corpus of docstrings."""
