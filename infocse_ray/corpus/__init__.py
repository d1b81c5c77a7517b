"""Reading, splitting and describing corpora."""
