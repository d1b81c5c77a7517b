"""The paper's tables on corpora of one's own: every method in one harness, with one budget of training."""
