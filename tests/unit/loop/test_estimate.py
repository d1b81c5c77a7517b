"""How long a run is said to take."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from infocse_ray.annotate.share import Share
from infocse_ray.loop.estimate import FOUR, SLOWER_ON_CPU, THREE, Estimate, work_of
from infocse_ray.loop.minutes import sized
from infocse_ray.loop.speed import Speed, speed_of
from infocse_ray.methods.recipes import RECIPES
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.runtime.placement import Placement
from infocse_ray.settings import Train
from tests.unit.loop.estimated import SPEED, WORK, run_of


def test_an_estimate_adds_up():
    one = WORK.estimate(SPEED, 100_000)
    assert one.annotating == 2 * (60 + 5)
    assert one.training == 2 * (400 + 5)
    assert one.validating == pytest.approx(2 * (5 + 2.5) * 2 + 10 + 10)
    assert one.seconds == sum(one)
    measured = WORK.estimate(SPEED._replace(trained_per_second=125.0), 100_000)
    assert measured.training == 2 * (1000 + 5), "a quarter more with caching"
    assert measured._replace(training=one.training) == one
    assert Estimate(120, 480, 110).line() == "some 12 min: annotating 2 min, training 8 min, validating 110 s"


def test_pilots_take_time_as_trainings_do():
    work = WORK._replace(pilots=3, piloted=5000.0)
    more = [b - a for a, b in zip(WORK.estimate(SPEED, 1e6), work.estimate(SPEED, 1e6), strict=True)]
    second, start = SPEED.tokens_per_second, SPEED.start_seconds
    assert more[0] == 0, "they train on the first iteration's annotation"
    assert more[1] == pytest.approx(3 * (5000 * 4 / second + start))
    assert more[2] == pytest.approx(3 * (1 + 5000 / WORK.between) * WORK.look / second), "the end at least"
    short = work.estimate(SPEED, 1000.0).training - WORK.estimate(SPEED, 1000.0).training
    assert short == pytest.approx(3 * (1000 * 4 / second + start)), "no pilot is longer than the training"


def test_texts_that_are_read_twice_are_embedded_once_by_the_encoder_before():
    work = WORK._replace(started=0.25, texts=50_000.0)
    assert work.estimate(SPEED, 99_999) == WORK.estimate(SPEED, 99_999)
    once = work.estimate(SPEED, 100_000)
    assert once.training == pytest.approx(2 * (0.8 * 400 + 50_000 / 1000 / 2 + 5)), "a quarter of 1.25 passes less"
    assert once._replace(training=810.0) == WORK.estimate(SPEED, 100_000)
    measured = work.estimate(SPEED._replace(trained_per_second=125.0), 100_000)
    assert measured.training == pytest.approx(2 * (0.8 * 1000 + 25 + 5))
    pilots = work._replace(pilots=3, piloted=100_000.0)
    assert pilots.estimate(SPEED, 10**6).training - work.estimate(SPEED, 10**6).training == 1.5 * once.training


def test_speed_is_that_of_all_actors_without_their_start():
    assert speed_of(tokens=12_000, busy=8.0, actors=2, took=9.0) == Speed(3000.0, 5.0)
    assert speed_of(0, 0.0, 1, 0.5).tokens_per_second > 0
    assert speed_of(12_000, 8.0, 1, 9.0, times=3.0) == Speed(4500.0, 1.0), "one, in place of three times what it has"


def test_what_a_run_has_to_do_follows_from_its_corpus_and_settings():
    work = work_of(run_of(loop={"max_iterations": 2}))
    assert (work.annotations, work.trainings) == (2, 2)
    assert work.annotated == pytest.approx(900 * 100)  # ten tokens a sentence, ten sentences a document
    assert work.step == 2 * 128 * 10
    assert work.look == pytest.approx(100 * (100 + 60 + 10)), "by their sentences, and whole; and counterparts"
    assert work.passes == SLOWER_ON_CPU * (THREE + 1), "one chunk, and the start's encoder"
    assert (work.started, work.texts) == (1 / (THREE + 1), work.annotated), "which is embedded once, where that pays"
    plain = work_of(run_of(train={"distillation": 0.0}))
    assert (plain.passes, plain.started) == (SLOWER_ON_CPU * THREE, 0.0)
    cached = work_of(run_of(train={"distillation": 0.0, "chunk_tokens": 64}))
    assert (cached.passes, cached.cached) == (SLOWER_ON_CPU * FOUR, FOUR / THREE)
    assert work.beside == 1, "four workers of a core embed, one of four trains"
    assert work.looks == 1 + 1, "at the end, and between, mostly once; what it starts from is known"
    assert work_of(run_of(train={"interpolation": []})).looks == 1
    assert work_of(run_of()).pilots == 0
    chooses = work_of(run_of(recipe="auto", loop={"pilot_steps": 7}))
    assert (chooses.pilots, chooses.piloted) == (len(RECIPES), 7 * chooses.step)
    once = work_of(run_of(train={"method": "simcse"}))
    assert (once.annotations, once.trainings) == (0, 1)
    part = run_of(annotate={"share": 0.5})
    store: Any = part.store
    store.summary |= {"lanes": 4}
    store.shards = 40
    part.iteration_stages.share = lambda _: Share(5, 1, 1)  # pyright: ignore
    assert work_of(part).annotated == work_of(part).texts == pytest.approx(900 * 100 / 2)
    long = run_of()
    long.store.summary["tokens"] *= 10
    assert work_of(long).step == 2 * 128 * 32, "an encoder reads max_length tokens of a sentence"
    most = 2**28 // 4 // 9000
    for dimensions, texts in {most: 900 * 100, most + 1: math.inf}.items():
        of_vectors = work_of(run_of(encoder={"model": "m", "dimensions": dimensions}))
        assert of_vectors.texts == pytest.approx(texts), "9,000 sentences, and some memory for their vectors"
    two = run_of(encoder={"model": "m", "dimensions": 2 * most})
    two.iteration_stages.where["train"] = Placement(2, False, 2)
    assert work_of(two).texts == pytest.approx(900 * 100), "of each worker"


@pytest.mark.parametrize(
    ("reading", "on", "look", "test"),
    [
        ("sentences", "counterpart", 120, 100),
        ("whole", "counterpart", 80, 60),  # where the encoder's folder cuts
        ("both", "counterpart", 180, 160),
        ("sentences", "sentence", 100, 100),
        ("whole", "sentence", 100, 60),  # sentences ask
        ("both", "sentence", 100, 160),
        ("sentences", "readings", 160, 100),  # whole texts and sentences, whatever the test reads
    ],
)
def test_what_reading_documents_takes(reading: str, on: str, look: float, test: float):
    run = run_of(on=on, validate={"reading": reading})
    run.store.summary["labelled"]["test"] = 100
    work = work_of(run)
    assert work.look == pytest.approx(100 * look)
    assert work.tested == pytest.approx(2 * 100 * look + (1 + work.trainings) * (100 * test + 200 * 10))


@pytest.mark.parametrize(("on", "most"), [("sentence", 0.5), ("counterpart", 1.0)])
def test_validation_of_a_large_corpus_takes_no_more_than_its_training(on: str, most: float):
    run = run_of(on=on, train={"max_steps": Train().max_steps})
    counts = {"tokens": 10**9, "sentences": 10**8, "documents": {"train": 8 * 10**6, "valid": 10**6, "test": 10**6}}
    run.store.summary.update(counts | {"labelled": {"train": 8 * 10**6, "valid": 10**6, "test": 0}})
    settings, work = run.settings, work_of(run)
    work = work._replace(tested=0.0)
    estimate = work.estimate(SPEED, settings.train.max_steps * work.step)
    assert estimate.validating < most * estimate.training


@pytest.mark.parametrize(("whole", "more"), [(False, 0.0), (True, 32 * 60)])
def test_whitening_anew_takes_its_sample(whole: bool, more: float):
    run = run_of(on="sentence")
    look = work_of(run).look
    run.iteration_stages.whitening = WhiteningPlan(0.5, None, ["train", "valid"], 1, whole)  # pyright: ignore
    assert work_of(run).look == pytest.approx(look + 16 * 32 * 10 + more), "a whole document for each dimension"


def test_a_run_says_before_it_works_how_long_it_takes(capsys):
    run = run_of()
    assert sized(run, time.monotonic()) is run, "without minutes nothing is changed"
    [line] = capsys.readouterr().out.splitlines()
    assert line == work_of(run).estimate(SPEED, 2000 * 2560).line()
    assert line.startswith("some ")
