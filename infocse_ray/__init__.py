"""infocse_ray: teach a sentence encoder your documents, without labels, at any scale."""

__version__ = "0.1.0"
