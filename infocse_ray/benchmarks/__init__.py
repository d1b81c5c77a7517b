"""What `infocse benchmark` measures, one file each, and what they share."""
