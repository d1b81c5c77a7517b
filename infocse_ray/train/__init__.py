"""Contrastive training: the loss over every worker's negatives, gradient caching, the loop, Ray Train."""
