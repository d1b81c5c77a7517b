"""Libraries that talk of their own accord are kept quiet: a run shows its own progress."""

from __future__ import annotations


def quiet_libraries() -> None:
    """Loading and saving an encoder each draw a bar of their own, which says nothing about the run: not here."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
