"""Vectors of a whole corpus, written by Ray Data actors."""
