"""The texts of a test's questions, as text again, and the ranks of the right answers by scores of any kind."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from tokenizers import Tokenizer

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.retrieval.validation import Questions


def texts_of(sentences: Tokens, offsets: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """Groups of sentences as texts.

    Args:
        sentences: of all groups.
        offsets: int64 [groups + 1]; group i has the sentences offsets[i]:offsets[i + 1].
        tokenizer: that the ids are of.
    """
    ids = [part.tolist() for part in np.split(sentences.values, sentences.offsets[1:-1])] if len(sentences) else []
    decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)  # as prompts are taken off
    return [" ".join(decoded[begin:end]) for begin, end in itertools.pairwise(offsets)]


def ranks_of(questions: Questions, scores: np.ndarray) -> np.ndarray:
    """Ranks of the right answers; ties count against, a document's other counterparts don't.

    Args:
        questions: of this process alone.
        scores: float [askers, candidates].

    Returns:
        int64 [questions], from 1.
    """
    scores = scores[questions.asker]
    keys = torch.from_numpy(questions.candidate_keys)
    sorted_keys, order = keys.sort()
    true_keys = torch.from_numpy(questions.true_keys)
    true = order[torch.searchsorted(sorted_keys, true_keys)].numpy()
    place = np.arange(len(true))
    bar = scores[place, true][:, None]
    counted = scores >= bar
    counted[place, true] = False
    counted[tuple(index.numpy() for index in questions.others().places_in(keys, true_keys))] = False
    return 1 + counted.sum(1)
