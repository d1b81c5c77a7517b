"""The report page: what a run came to as one self-contained HTML file."""
