"""The commands of `infocse`, one file each: its help, its settings, what it prints."""
