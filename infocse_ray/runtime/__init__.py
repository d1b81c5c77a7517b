"""Ray: connecting to it, placing workers, stopping, progress; what every command does around its work."""
