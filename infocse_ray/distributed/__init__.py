"""What the workers of a process group exchange, and memory that runs out."""
