"""Tasks of mteb: a tiny one runs for real; what can't be had is said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.encoder.load import load_encoder
from infocse_ray.settings import Encoder
from infocse_ray.suites import mteb_tasks
from infocse_ray.suites.mteb_tasks import find_tasks, load, run_task
from tests.conftest import make_documents

pytest.importorskip("mteb", reason="mteb is an extra of its own")


def tiny_task(right: bool = True) -> Any:
    """Each document's first sentence looks for it; where not `right`, for the next document."""
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from mteb.abstasks.retrieval import AbsTaskRetrieval  # pyright: ignore[reportMissingImports]
    from mteb.abstasks.task_metadata import TaskMetadata  # pyright: ignore[reportMissingImports]

    documents = make_documents(20)
    ids = [d["id"] for d in documents]

    class Tiny(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Tiny",
            description="Twenty documents.",
            dataset={"path": "nowhere/tiny", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
            sentences = [d["sentences"][0] for d in documents]
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": Dataset.from_dict({"id": ids, "title": [""] * len(ids), "text": sentences}),
                        "queries": Dataset.from_dict({"id": [f"q{i}" for i in ids], "text": sentences}),
                        "relevant_docs": {f"q{i}": {ids[n - (not right)]: 1} for n, i in enumerate(ids)},
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    return Tiny()


def test_a_task_runs_on_the_folder(tiny_encoder: Path, tmp_path: Path):
    settings = Encoder(model=str(tiny_encoder), query_prompt="the sky ")
    encoder = load_encoder(tiny_encoder, settings, cosine=True)
    encoder.save(tmp_path / "model")
    done = run_task(tiny_task(), tmp_path / "model", "cpu")
    assert done["measure"] == "ndcg_at_10"
    assert done["score"] > 0.9 > run_task(tiny_task(right=False), tmp_path / "model", "cpu")["score"]
    assert done["result"]["scores"]["test"][0]["main_score"] == pytest.approx(done["score"], abs=1e-4)


def test_data_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch):
    task = tiny_task()

    def fail(**_: Any) -> None:
        raise ConnectionError("Couldn't reach it.\nA second line.")

    monkeypatch.setattr(task, "load_data", fail)
    with pytest.raises(ValueError, match=r"^tasks = 'Tiny': its data \(nowhere/tiny\) is neither") as error:
        load(task)
    assert str(error.value).endswith("Couldn't reach it.")


def test_tasks_by_name(monkeypatch: pytest.MonkeyPatch):
    loaded: list[str] = []
    monkeypatch.setattr(mteb_tasks, "load", lambda task: loaded.append(task.metadata.name))
    assert [task.metadata.name for task in find_tasks(["NFCorpus", "STSBenchmark"])] == loaded
    with pytest.raises(ValueError, match=r"tasks = 'NFCorpos': mteb \S+ has no such task: did you mean NFCorpus\?"):
        find_tasks(["NFCorpos"])
