"""The seeded stream that deals out examples, the same for any number of workers."""
