"""Ray Tune over the settings of `pretrain`: what `jobs/sweep.py` does."""
