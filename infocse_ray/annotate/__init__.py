"""Annotate documents with clusters of semantically close sentences."""
