"""A page to look at the clusters of some documents in, iteration by iteration."""
