"""What a corpus is tokenised with: what names it."""

from __future__ import annotations

from infocse_ray.corpus.tokenizer import CorpusTokenizer


def test_a_corpus_is_named_by_what_is_put_before_its_texts():
    plain = CorpusTokenizer("t")
    ways = [("", None), (" ", None), ("", ""), ("", "a"), (" ", "a"), ("", "b")]
    assert len({plain._replace(before=before, prompt=prompt).named for before, prompt in ways}) == len(ways)
    assert plain.named == ("t",), "as a corpus was named before anything could be put there"
