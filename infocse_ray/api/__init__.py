"""The Python API: adapt an encoder to documents, and look at the result; `infocse_ray` has its names."""
