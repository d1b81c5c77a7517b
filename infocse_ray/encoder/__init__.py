"""The sentence encoder f(.): a Hugging Face backbone and pooling, its batches, its files."""
