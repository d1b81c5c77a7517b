"""An encoder in the formats that production takes, and in a repository of the hub."""
