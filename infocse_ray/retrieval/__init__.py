"""Retrieval: document vectors, exact ranks, Recall@k and MRR."""
