"""Finished runs of one corpus, that benchmarks look at again."""

from __future__ import annotations

from typing import Any, NamedTuple

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop.manifest import folder_in, read_manifest
from infocse_ray.storage.folder import Storage


class FinishedRuns(NamedTuple):
    """The runs, and their corpus, which has a test."""

    root: Storage
    """The storage that runs share."""
    names: list[str]
    manifests: list[dict[str, Any]]
    store: TokenStore

    @classmethod
    def of(cls, storage: str, names: list[str]) -> FinishedRuns:
        """Find them.

        Raises:
            ValueError: one isn't finished, they are of several corpora or encoders, or there is no test.
        """
        root = Storage.open(storage)
        manifests = [_finished(root / name) for name in names]
        corpora = {manifest["stages"]["corpus"]["folder"] for manifest in manifests}
        if len(corpora) > 1:
            raise ValueError(f"--runs: they are of {len(corpora)} corpora; give runs of one at a time")
        began = {(manifest.get("inputs") or {}).get("encoder") for manifest in manifests}
        if len(began) > 1:
            raise ValueError(f"--runs: they began with {len(began)} encoders; give runs of one at a time")
        store = TokenStore.open(folder_in(root, corpora.pop()))
        if not store.summary["labelled"]["test"]:
            raise ValueError(
                f"--runs = {names[0]}: no test document has a counterpart; give runs with corpus.counterpart and "
                "corpus.test_fraction"
            )
        return cls(root, names, manifests, store)

    def __str__(self) -> str:
        """How many."""
        return f"{len(self.names)} run{'' if len(self.names) == 1 else 's'}"


def _finished(run: Storage) -> dict[str, Any]:
    try:
        manifest = read_manifest(run)
    except FileNotFoundError:
        raise ValueError(f"--runs: {run} is no run; give finished runs, as `infocse runs` lists them") from None
    if "corpus" not in manifest["stages"] or not (run / "model" / "tokenizer.json").exists():
        raise ValueError(f"--runs: {run} is not finished; give finished runs, as `infocse runs` lists them")
    return manifest
