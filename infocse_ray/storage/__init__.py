"""Folders on disk or in an object store, and files that verify themselves."""
