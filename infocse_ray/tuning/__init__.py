"""Ray Tune over the settings of `pretrain`: what `infocse sweep` does."""
