"""An encoder whitened anew by workers, and the start's whitening stage: the same whoever shares the work."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from infocse_ray.annotate import documents
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.mixture import Mixture
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening_fit import POWERS, fit_whitening
from infocse_ray.errors import ConstantVectors
from infocse_ray.loop import whitening as whitening_stage
from infocse_ray.loop.whitening import trained_dimension, whiten_start, whitening_plan
from infocse_ray.retrieval import refit
from infocse_ray.retrieval.held_out import held_out_for, score_held_out
from infocse_ray.retrieval.refit import Refit, Sample, WhiteningPlan, best_whitening
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings import Encoder, Settings
from infocse_ray.settings.train import Validate
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage
from tests.unit.group import on_workers
from tests.unit.passes import SPLITS, encoder_in, small_store
from tests.unit.stores import Written, write_store

AUTO = WhiteningPlan(None, None, SPLITS, 3)
WHOLE = AUTO._replace(whole=True)
CPU = torch.device("cpu")


def encoder_of(folder: Path) -> SentenceEncoder:
    return load_encoder(folder, Encoder(model=str(folder), max_length=16), cosine=True)


def of_dimension(dimension: int) -> SentenceEncoder:
    """What a sample is drawn for."""
    return cast(SentenceEncoder, SimpleNamespace(base_dimension=dimension, ids_behind_a_space=None))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return small_store(tmp_path_factory.mktemp("store"), count=120, by_key=True)


def sentences_of(store: TokenStore) -> Any:
    tables = [t for shard in range(store.shards) for t in store.read(shard, SPLITS)]
    return concatenate([documents_of(t).sentences for t in tables])


def test_the_map_is_that_of_all_sentences_and_the_power_the_one_that_finds_held_out_sentences_best(
    tiny_encoder: Path, store: TokenStore
) -> None:
    encoder = encoder_of(tiny_encoder)
    moments = Moments.of(embed(encoder, sentences_of(store)).vectors)
    asking = held_out_for(store, "valid", 3)
    vectors = asking.embed(encoder)
    scores = {p: score_held_out(fit_whitening(moments, p)(vectors), asking).metrics["mrr"] for p in POWERS}
    found = Refit.of(AUTO, store, encoder, CPU)(encoder)
    assert len(set(scores.values())) > 1
    assert found.power == max(POWERS, key=lambda p: scores[p])
    torch.testing.assert_close(found.matrix, fit_whitening(moments, found.power).matrix)
    fixed = Refit.of(AUTO._replace(power=0.4, dimensions=5), store, encoder, CPU)(encoder)
    assert (fixed.power, fixed.dimension) == (0.4, 5)


def whole_texts_of(encoder: SentenceEncoder, store: TokenStore) -> Any:
    """Vectors of documents as one text each, in a slow way."""
    texts = []
    for table in (t for shard in range(store.shards) for t in store.read(shard, SPLITS)):
        documents = documents_of(table)
        for begin, end in itertools.pairwise(documents.offsets):
            own = documents.sentences.take(np.arange(begin, end))
            texts.append(Tokens(own.values, np.array([0, len(own.values)])))
    before, encoder.max_length = encoder.max_length, 24
    vectors = embed(encoder, concatenate(texts)).vectors
    encoder.max_length = before
    return vectors


def test_the_map_for_whole_documents_is_of_them_and_of_sentences_and_the_power_that_of_sentences_alone(
    tiny_encoder: Path, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_of(tiny_encoder)
    encoder.max_seq_length = 24
    moments = Moments.of(embed(encoder, sentences_of(store)).vectors)
    whole = Moments.of(whole_texts_of(encoder, store))
    monkeypatch.setattr(refit, "WHOLE_A_DIMENSION", 10)
    found = Refit.of(WHOLE, store, encoder, CPU)
    assert found.whole is not None
    assert len(found.whole) == whole.count, "of a small corpus all"
    both, alone = found(encoder), Refit.of(AUTO, store, encoder, CPU)(encoder)
    assert both.power == alone.power
    asking = held_out_for(store, "valid", 3)
    chosen_by = [best_whitening(moments, WHOLE, asking.embed(encoder), asking, texts)[1] for texts in (whole, None)]
    assert chosen_by[0] == chosen_by[1], "also where another map would have the same power"
    torch.testing.assert_close(both.matrix, fit_whitening(Mixture(moments, whole), both.power).matrix)
    assert not torch.allclose(both.matrix, alone.matrix, atol=1e-3)
    fixed = Refit.of(WHOLE._replace(power=0.4), store, encoder, CPU)(encoder)
    torch.testing.assert_close(fixed.matrix, fit_whitening(Mixture(moments, whole), 0.4).matrix)
    assert encoder.max_length == 16, "as it was before"


def test_about_one_whole_document_a_dimension_is_sampled(store: TokenStore) -> None:
    there = store.documents(SPLITS)
    some = Refit.of(WHOLE, store, of_dimension(there // 4), CPU).whole
    assert some is not None
    assert there / 8 < len(some) < there / 2


def test_of_long_documents_many_are_sampled_each_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [Written(f"d{i}", [[5 + i % 90, 5 + j % 90] for j in range(120)]) for i in range(90)]
    there = write_store(Storage.open(str(tmp_path)), long, 4, by_key=True)
    monkeypatch.setattr(refit, "_LEAST_DOCUMENTS", 30)
    sample = Sample.of(there, SPLITS, dimension=16)  # 256 sentences, of about two documents
    found = Refit.of(AUTO._replace(power=1.0), there, of_dimension(16), CPU).sample
    assert 150 < len(found) < 400
    begins = {int(found.values[begin]) for begin in found.offsets[:-1]}
    assert len(begins) > 15, "documents that the sentences are of"
    assert sample.share == pytest.approx(256 / (30 * 120), rel=0.01)
    monkeypatch.setattr(refit, "_LEAST_DOCUMENTS", 1)
    assert Sample.of(there, SPLITS, dimension=16).share == 1.0


def test_a_plan_without_whole_documents_is_named_as_before_there_were_such() -> None:
    assert AUTO.identity() == [None, None, SPLITS, 3]
    assert WHOLE.identity() == [None, None, SPLITS, 3, True]


def test_the_whitening_that_the_encoder_had_is_not_whitened_again(tiny_encoder: Path, store: TokenStore) -> None:
    encoder = encoder_of(tiny_encoder)
    share = Refit.of(AUTO._replace(power=1.0), store, encoder, CPU)
    first = share(encoder)
    encoder.whitening = first
    assert torch.equal(share(encoder).matrix, first.matrix)


def test_validating_by_what_chooses_the_power_embeds_nothing_twice(tiny_encoder: Path, store: TokenStore) -> None:
    encoder = encoder_of(tiny_encoder)
    share = Refit.of(AUTO, store, encoder, CPU)
    questions = held_out_for(store, "valid", AUTO.seed)
    found = share.scores(encoder, questions)
    assert found is not None
    assert encoder.whitening is not None
    alone = score(encoder, questions)
    assert found.metrics == pytest.approx(alone.metrics, abs=1e-6)
    # Others are not taken for these.
    assert share.scores(encoder, held_out_for(store, "valid", AUTO.seed + 1)) is None
    assert share.scores(encoder, questions_for(store, "valid", "halves")) is None
    assert Refit.of(AUTO._replace(power=1.0), store, encoder, CPU).scores(encoder, questions) is None


def whitened(folder: str, store: TokenStore, plan: WhiteningPlan = AUTO) -> tuple[float, np.ndarray, np.ndarray]:
    encoder = encoder_of(Path(folder))
    found = Refit.of(plan, store, encoder, CPU)(encoder)
    return found.power, found.mean.numpy(), found.matrix.numpy()


@pytest.mark.parametrize("plan", [AUTO, WHOLE])
def test_three_workers_find_the_map_of_one_and_all_have_the_same(
    tiny_encoder: Path, store: TokenStore, plan: WhiteningPlan
) -> None:
    power, mean, matrix = whitened(str(tiny_encoder), store, plan)
    found = on_workers(3, whitened, str(tiny_encoder), store, plan)
    for theirs in found:
        assert theirs[0] == power
        np.testing.assert_array_equal(theirs[2], found[0][2])
        np.testing.assert_allclose(theirs[1], mean, atol=1e-5)
        ours, yours = (m @ m.T for m in (matrix, theirs[2]))  # eigenvectors may have other signs
        np.testing.assert_allclose(yours, ours, atol=1e-3)


def test_the_sample_is_a_part_of_a_large_corpus_and_all_of_a_small_one(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = len(sentences_of(store))
    whole = Refit.of(AUTO, store, of_dimension(10_000), CPU).sample
    assert len(whole) == everything
    monkeypatch.setattr(refit, "SENTENCES_A_DIMENSION", 1)
    part = Refit.of(AUTO, store, of_dimension(everything // 4), CPU).sample
    assert everything / 16 < len(part) < everything / 2


class Actors:
    """The start's stage with its Ray replaced by plain calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.works = 0
        monkeypatch.setattr(whitening_stage, "in_actors", self._in_actors)
        monkeypatch.setattr(whitening_stage, "in_one_task", lambda work, *arguments, **_: work(*arguments))
        monkeypatch.setattr(whitening_stage, "of_one", lambda where: float(where.workers))
        monkeypatch.setattr(whitening_stage, "quiet_data", lambda: None)
        monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 1)

    def _in_actors(
        self, groups: Any, encoder: Any, precision: Any, where: Placement, work: Any, title: str, tokens: float
    ) -> Iterator[dict]:
        assert title == "whitening", "what waits is named by its stage"
        pool = [(Annotator(encoder, precision, CPU), pickle.loads(pickle.dumps(work))) for _ in range(where.workers)]
        for number, group in enumerate(reversed(groups) if where.workers > 1 else groups):
            self.works += 1
            annotator, own = pool[number % where.workers]
            yield from own(annotator, group)


def whiten(store: TokenStore, folder: Path, model: Path, plan: WhiteningPlan = AUTO, workers: int = 1) -> Any:
    root = Storage.open(str(folder))
    where = Placement(workers, False, 1)
    return whiten_start(root, root / "w", store, encoder_of(model), encoder_in(model), plan, "fp32", where)


@pytest.mark.parametrize("plan", [AUTO, WHOLE])
def test_the_starts_stage_finds_what_workers_find_by_any_number_of_actors(
    tiny_encoder: Path, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: WhiteningPlan
) -> None:
    actors = Actors(monkeypatch)
    (one, folder), (three, other) = (whiten(store, tmp_path / str(n), tiny_encoder, plan, n) for n in (1, 3))
    power, mean, _ = whitened(str(tiny_encoder), store, plan)
    sampled = Refit.of(plan, store, of_dimension(32), CPU).whole
    assert one.summary.get("whole") == (None if sampled is None else len(sampled))
    assert (one.summary["power"], one.summary["dimension"]) == (power, 32)
    assert one.summary["sentences"] == len(sentences_of(store))
    assert one.summary["scores"] == three.summary["scores"]
    maps = [where.load().whitening for where in (folder, other)]
    assert torch.equal(maps[0].matrix, maps[1].matrix)
    np.testing.assert_allclose(maps[0].mean.numpy(), mean, atol=1e-5)
    assert not (one.folder / "parts").exists()
    curves = read_checked(one.folder / "whitening.json")["curves"]
    assert curves == read_checked(three.folder / "whitening.json")["curves"]
    assert {power: one["mrr"] for power, one in curves["powers"].items()} == one.summary["scores"]
    assert sorted(curves["cuts"], key=int) == ["8", "16", "32"]
    assert curves["cuts"]["32"] == curves["powers"][f"{power:g}"]
    assert len(curves["spectrum"]) == 32
    assert curves["spectrum"] == sorted(curves["spectrum"], reverse=True)
    before = actors.works
    whiten(store, tmp_path / "1", tiny_encoder, plan)
    assert actors.works == before


def test_shards_of_whole_texts_are_looked_at_where_sentences_need_fewer(
    tiny_encoder: Path, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "SENTENCES_A_DIMENSION", 1)
    monkeypatch.setattr(refit, "WHOLE_A_DIMENSION", 10)
    Actors(monkeypatch)
    one, _ = whiten(store, tmp_path, tiny_encoder, WHOLE._replace(power=1.0))
    assert one.summary["sentences"] < len(sentences_of(store))
    assert one.summary["whole"] == store.documents(SPLITS)


def test_a_corpus_of_one_sentence_gives_one_clear_line(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.stores import Written, write_store

    same = [Written(f"d{i}", [[7, 8, 9]] * 4, split="train" if i % 3 else "valid") for i in range(30)]
    constant = write_store(Storage.open(str(tmp_path / "s")), same, 2)
    Actors(monkeypatch)
    with pytest.raises(ValueError, match=r"encoder\.whiten: the 80 texts .* all have the same vector"):
        whiten(constant, tmp_path / "r", tiny_encoder, AUTO._replace(power=1.0, splits=["train"]))
    with pytest.raises(ValueError, match=r"encoder\.whiten"):
        whiten(constant, tmp_path / "q", tiny_encoder, AUTO._replace(splits=["train"]))


def test_an_encoder_that_collapsed_keeps_the_whitening_it_had(tiny_encoder: Path, store: TokenStore) -> None:
    encoder = encoder_of(tiny_encoder)
    refitted = Refit.of(AUTO, store, encoder, CPU)
    encoder.whitening = before = refitted(encoder)
    for parameter in encoder.parameters():
        parameter.data.zero_()
    encoder.whitening, vectors = refitted.fit(encoder)
    assert torch.equal(encoder.whitening.matrix, before.matrix)
    assert vectors is not None
    asked = refitted.held_out
    assert asked is not None
    # All ties count against: no such step is ever chosen.
    assert score_held_out(encoder.whitening(vectors), asked).metrics["recall@5"] == 0.0
    encoder.whitening = None
    with pytest.raises(ConstantVectors, match="all have the same vector"):
        refitted(encoder)


def test_documents_of_one_text_repeated_that_cant_be_asked_get_the_power_that_none_was_chosen_for(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    from tests.unit.stores import Written, write_store

    echoes = [Written(f"d{i}", [[5 + i % 50]] * 2, split="train" if i % 3 else "valid") for i in range(60)]
    repeated = write_store(Storage.open(str(tmp_path / "s")), echoes, 2)
    encoder = encoder_of(tiny_encoder)
    alone, both = (Refit.of(plan, repeated, encoder, CPU)(encoder) for plan in (AUTO, WHOLE))
    assert alone.power == both.power == 0.5
    assert not torch.allclose(alone.matrix, both.matrix, atol=1e-3), "that of whole texts, too, is of both"


def settings(train: dict | None = None, **encoder: Any) -> Settings:
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m", **encoder}, "train": train or {}}
    return Settings.model_validate(content)


def test_auto_whitens_where_vectors_have_length_1_and_an_asked_for_power_is_refused_where_not(
    tiny_encoder: Path,
) -> None:
    unit = encoder_of(tiny_encoder)
    plain = load_encoder(tiny_encoder, Encoder(model="m", max_length=16), cosine=False)
    assert whitening_plan(settings(), unit, ["train"]) == WhiteningPlan(None, None, ["train"], 42, whole=True)
    assert whitening_plan(settings(whiten=0.5), unit, []) == WhiteningPlan(0.5, None, [], 42, whole=True)
    by_sentences = settings().model_copy(update={"validate": Validate(reading="sentences")})
    assert whitening_plan(by_sentences, unit, []) == WhiteningPlan(None, None, [], 42)
    assert whitening_plan(settings(whiten="off"), unit, []) is None
    assert whitening_plan(settings(), plain, []) is None
    with pytest.raises(ValueError, match=r"encoder\.whiten = 0\.5: .* set train\.similarity to cosine"):
        whitening_plan(settings(whiten=0.5), plain, [])
    with pytest.raises(ValueError, match=r"encoder\.dimensions = 8: .* set train\.similarity to cosine"):
        whitening_plan(settings(dimensions=8), plain, [])
    with pytest.raises(ValueError, match=r"encoder\.dimensions = 33: the encoder's vectors have 32"):
        whitening_plan(settings(dimensions=33), unit, [])
    with pytest.raises(ValueError, match=r"train\.whitened = true: there is no whitening"):
        whitening_plan(settings({"whitened": True}), plain, [])


def test_heads_see_as_many_dimensions_as_the_loss_compares(tiny_encoder: Path) -> None:
    unit = encoder_of(tiny_encoder)
    assert trained_dimension(settings(dimensions=8), unit) == 32
    assert trained_dimension(settings({"whitened": True}, dimensions=8), unit) == 8
    assert trained_dimension(settings({"whitened": True}), unit) == 32


@pytest.mark.parametrize(("given", "kept"), [(False, "off"), (True, "auto"), (0, 0.0), ("auto", "auto"), (1.25, 1.25)])
def test_yamls_off_is_off(given: Any, kept: Any) -> None:
    assert settings(whiten=given).encoder.whiten == kept


def test_dimensions_without_whitening_are_refused() -> None:
    with pytest.raises(ValueError, match=r"encoder\.dimensions = 8: with encoder\.whiten = off"):
        settings(whiten="off", dimensions=8)
