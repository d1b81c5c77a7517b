"""What `jobs/benchmark.py` measures, one file each, and what they share."""
