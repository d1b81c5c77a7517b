"""The model cards that go with exported encoders."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from huggingface_hub import EvalResult

from infocse_ray import __version__
from infocse_ray.encoder.origin import Origin
from infocse_ray.loop.card_metadata import front_matter, retrieval_results, sts_result
from infocse_ray.loop.card_snippet import SAID, snippet
from infocse_ray.methods.recipes import how_chosen
from infocse_ray.methods.registry import title_of
from infocse_ray.retrieval.ranks import shown
from infocse_ray.settings import Baseline, Settings


def model_card(settings: Settings, metrics: dict[str, Any]) -> str:
    """Of an encoder adapted without labels: Markdown, its front matter as sentence-transformers and the hub read it.

    Args:
        settings: of the run.
        metrics: of the run; `whitening` among them, if the encoder has one, is its `power` and the `dimension` of the
            vectors.
    """
    first, further = settings.loop.initialization, settings.train.method
    trained, best, whitened = further != "none", metrics["best_iteration"], metrics.get("whitening") is not None
    began = "started from" if first == "none" else f"was initialised to with {title_of(first)}"
    # Of a training that validated no better nothing is in the encoder.
    only_initialised = first != "none" and not best
    made = first if only_initialised else further
    method = " and ".join([title_of(made)] * (made != "none" or not whitened) + ["whitening"] * whitened)
    chosen = f" {how_chosen(metrics['recipe'])}" if "recipe" in metrics else ""
    about = f"""A sentence encoder adapted without labels to {_corpus(metrics)} with {method} by
infocse_ray {__version__}. It is the encoder of iteration {best}; iteration 0 is the one it
{began}.{chosen}"""
    how = _training(settings) if made != "none" else "No training"
    entries = metrics["iterations"]
    if only_initialised and entries[0].get("validation", {}).get("kind") == "start":
        tried = f"training it with {title_of(first)}" + (f", and further with {title_of(further)}," if trained else "")
        about, how = _as_it_began(metrics, tried), f"What was tried: {how}"
    elif only_initialised and trained:
        about += f" Training it further with {title_of(further)} validated no better."
        how = _batches(settings)
    elif trained and not best:
        about = _as_it_began(metrics, f"training it further with {title_of(further)}") + chosen
        how = f"What was tried: {how}"
    if "start" in metrics and first == "none":  # which has its row above
        entries = [entry for entry in entries if entry["iteration"]]
    rows = [_row(_name(entry["iteration"], first), entry) for entry in entries]
    return _card(settings, metrics, about, rows, how)


def few_shot_card(settings: Settings, metrics: dict[str, Any]) -> str:
    """Of a fine-tuned encoder."""
    labels, best = metrics["labels"], metrics["best_round"]
    drawn = labels["train_size"]
    count = labels["labelled"]["train"] if drawn == "all" else drawn
    share = settings.plusplus.label_share
    among = f" (labelled examples are {share:g} of its batches, too)" if share else ""
    first, further = settings.loop.initialization, settings.train.method
    unlabelled = f"{title_of(further)}{among}" if further != "none" else ""
    made = _trained_in(metrics["rounds"][:best])
    adapted = f"A sentence encoder adapted to {_corpus(metrics)}"
    tuned = f"fine-tuning it on {count:,} labelled examples"
    if made.labels:
        turns = f" and with {unlabelled}, in turns," if made.further else ""
        turns = f", after {title_of(first)}," if made.first and not made.further else turns
        about = f"""{adapted}, fine-tuned on {count:,} labelled examples{turns} by
infocse_ray {__version__}. It is the fine-tuned encoder of round {best}."""
        if unlabelled and not made.further:
            about += f" Training without labels, with {unlabelled}, validated no better."
    elif best:
        about = f"""{adapted} with {unlabelled if made.further else title_of(first)} by
infocse_ray {__version__}. It is the encoder of round {best}; {tuned} validated no better."""
    else:
        about = _as_it_began(metrics, tuned + (f" and with {unlabelled}, in turns" if unlabelled else ""))
    rows = []
    for one in metrics["rounds"]:
        rows.append(_row(f"round {one['round']}: {_name(one['zero_shot']['iteration'], first)}", one["zero_shot"]))
        rows.append(_row(f"round {one['round']}: fine-tuned", one["fine_tuned"]))
    section = settings.finetune
    tuning = f"fine-tuning: batch {section.batch_size}, learning rate {section.learning_rate:g}, at most "
    tuning += f"{section.epochs} epoch(s), temperature {section.temperature or settings.train.temperature:g}"
    parts = [(tuning, made.labels)]
    if further != "none":
        only_initialised = made.first and not made.further
        training = _batches(settings) if only_initialised else _training(settings)
        parts.insert(0, (training, made.further or only_initialised))
    there, tried = ("; ".join(said for said, is_in in parts if is_in == wanted) for wanted in (True, False))
    how = "; ".join([there] * (there != "") + [f"What was tried: {tried}"] * (tried != ""))
    return _card(settings, metrics, about, rows, how)


class _TrainedIn(NamedTuple):
    """Which trainings made an encoder what it is: those that gave back what they got are not in it."""

    first: bool
    """The initialisation."""
    further: bool
    """Training without labels."""
    labels: bool
    """Fine-tuning."""


def _trained_in(rounds: list[dict[str, Any]]) -> _TrainedIn:
    """What is in the fine-tuned encoder of the last of these rounds."""
    used = [
        iteration["iteration"]
        for one in rounds
        for iteration in one["iterations"]
        if iteration["iteration"] <= one["zero_shot"]["iteration"]
        and "train" in iteration
        and iteration["validation"]["kind"] != "start"
    ]
    tuned = [one for one in rounds if one["fine_tuned"]["validation"]["kind"] != "start"]
    return _TrainedIn(0 in used, any(used), bool(tuned))


def _as_it_began(metrics: dict[str, Any], tried: str) -> str:
    """Of an encoder that is what training began with: nothing that was trained is in it."""
    is_it = "A sentence encoder as it came, exported"
    if metrics.get("whitening") is not None:
        is_it = f"A sentence encoder adapted without labels to {_corpus(metrics)} with whitening"
    return f"""{is_it} by infocse_ray {__version__}.
It is what training began with: {tried} validated no better."""


def _corpus(metrics: dict[str, Any]) -> str:
    corpus = metrics["corpus"]
    return f"a corpus of {corpus['documents']:,} documents ({corpus['sentences']:,} sentences)"


def _training(settings: Settings) -> str:
    return f"{_how(settings)}{_batches(settings)}"


def _batches(settings: Settings) -> str:
    return f"batch {settings.train.batch_size}, learning rate {settings.train.learning_rate:g}"


def _card(settings: Settings, metrics: dict[str, Any], about: str, rows: list[str], how: str) -> str:
    whitening = metrics.get("whitening")
    unit = settings.train.similarity == "cosine" or whitening is not None
    similarity = "cosine" if unit else "inner product"
    whitened = (
        f"""
- sentence vectors are whitened with power {whitening["power"]:g} and have {whitening["dimension"]} dimensions"""
        if whitening is not None
        else ""
    )
    judged = f"\n\nVerdict: {metrics['verdict']['line']}." if "verdict" in metrics else ""
    if (sts := metrics.get("sts")) is not None:
        judged += f"\n\n{_general_ability(sts)}"
    rows = [_row(_BEGAN[name], metrics[name]) for name in _BEGAN if name in metrics] + rows
    table = "\n".join(rows)
    origin = Origin(**metrics["origin"]) if "origin" in metrics else Origin(None, None)
    head = front_matter(settings.name, origin, _results(metrics), whitened=whitening is not None)
    return f"""{head}
# {settings.name}

{about}

- {_base(origin)}{_prompts(metrics.get("prompts", {}))}
- sentences were cut to {settings.encoder.max_length} tokens; similarity: {similarity}{whitened}
- a document's vector is {SAID[settings.validate.reading]}

```python
{snippet(settings, unit)}
```

infocse-ray gives the same vectors, and knows from `infocse.json` how documents are read:
`DocumentEncoder("path/to/this/folder")` has `encode_document(texts)` and `encode_query(texts)`. `AutoModel` loads the
backbone alone, and what the folder has besides (pooling, further layers, whitening, prompts) is missing then.

## Retrieval ({_asked(metrics)})

| encoder | validation R@5 | R@10 | R@20 | MRR | test R@5 | R@10 | R@20 | MRR |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}{judged}

In brackets: 95 % intervals, which are those of having asked so many questions and no more.

{how}, seed {settings.seed}.
"""


def _asked(metrics: dict[str, Any]) -> str:
    """What documents had to find; the test is of counterparts always."""
    on = metrics["validate_on"]
    if on == "counterpart" or "test" not in metrics.get("result", {}):
        return on
    return f"validation: {on}, test: counterpart"


def _results(metrics: dict[str, Any]) -> list[EvalResult]:
    """What the exported encoder scored, for programs."""
    result, results = metrics.get("result", {}), []
    for name, on in (("validation", metrics["validate_on"]), ("test", "counterpart")):
        if name in result:
            results += retrieval_results(result[name], on, name)
    if "result" in metrics.get("sts", {}):
        results.append(sts_result(metrics["sts"]["result"]))
    return results


def _base(origin: Origin) -> str:
    named = f"base model: `{origin.name}`" if origin.name else "the base model's name isn't known"
    if origin.license is None:
        return f"{named}; its licence isn't known here: look it up before you share this one"
    return f"{named}; its licence: {origin.license_name or origin.license}"


def _prompts(prompts: dict[str, str]) -> str:
    """What is put before texts, for people; nothing where nothing is."""
    put = [f"a {role}'s texts are put behind {json.dumps(text)}" for role, text in prompts.items() if text]
    return f"\n- prompts: {', '.join(put)}" if put else ""


def _general_ability(sts: dict[str, float]) -> str:
    said = ", ".join(f"{name} {value:.4f}" for name, value in sts.items())
    said = f"General ability, Spearman's rank correlation on pairs of sentences: {said}."
    if "start" in sts and "result" in sts:
        cost = sts["start"] - sts["result"]
        said += f" Being adapted {'cost' if cost >= 0 else 'gave'} {abs(cost):.4f}."
    return said


_BEGAN = {"start": "the encoder as it came", "whitened": "the same, whitened"}
"""What a run began with, as `metrics.json` calls it, for people."""


def _how(settings: Settings) -> str:
    """InfoCSE's own settings."""
    if settings.train.method != "idc":
        return ""
    annotate, train = settings.annotate, settings.train
    parts = [
        f"K = {annotate.k}" if annotate.clustering == "partition" else f"{annotate.kmeans_clusters} global clusters"
    ]
    parts += ["another encoder annotated first"] if annotate.first_encoder else []
    parts += [f"distillation = {train.distillation:g}"] if train.distillation else []
    return ", ".join([*parts, f"temperature {train.temperature:g}", ""])


def _name(iteration: int, first: Baseline) -> str:
    """Of an iteration's encoder; the first is the start unless it was initialised with a method."""
    return "start" if iteration == 0 and first == "none" else f"iteration {iteration}"


def _row(name: str, entry: dict[str, Any]) -> str:
    return f"| {' | '.join([name, *_cells(entry.get('validation')), *_cells(entry.get('test'))])} |"


def _cells(scores: dict[str, float] | None) -> list[str]:
    return [shown(scores, name) if scores else "" for name in ("recall@5", "recall@10", "recall@20", "mrr")]
