"""The outer loop: annotate, train, validate, repeat; every stage resumable."""
