"""The kinds of corpus by name, as `corpus.kind` says them."""

from __future__ import annotations

from infocse_ray.corpus import browsing, mind, msmarco, tables
from infocse_ray.corpus.kind import CorpusKind

KINDS: dict[str, CorpusKind] = {"auto": tables, "mind": mind, "msmarco": msmarco, "browsing": browsing}
