"""Positive pairs: where they come from and the seeded stream that deals them out."""
