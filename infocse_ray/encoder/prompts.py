"""Prompts that an encoder expects before its texts, such as "query: ", and their token ids.

The corpus is tokenised once and without prompts, so a prompt is token ids put before a text's. Together they must be
what the tokenizer makes of both as one text, as other libraries encode it. Where a token takes in the space before a
word, as byte-level ones do, that holds only if the corpus is tokenised as if a space stood before each text. Where no
way serves the query prompt as well as the documents' (often there is only one of them, or none ends in a space),
counterparts are tokenised behind their prompt: they are few, and no pairs.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from tokenizers import Tokenizer

from infocse_ray.corpus.tokenizer import CorpusTokenizer

Role = Literal["document", "query"]
"""A document's sentences, or what is searched for or with: the counterparts."""

ROLES: tuple[Role, Role] = ("document", "query")
"""Both."""

_NAMES: dict[Role, tuple[str, ...]] = {"document": ("document", "passage", "corpus"), "query": ("query",)}
"""Names that sentence-transformers gives to the prompts of each role; the first that is there counts."""

_TEXTS = (
    *("the", "The law of tides", "tokenization of unfamiliar words", "Über", "été", "ALL CAPITALS", "x-ray", "_name_"),
    *("42 is", "3.5", "€5", "(in brackets)", "'quoted'", '"quoted"', "... and so on", "? !", "#tag", "e@example.org"),
    *("дом", "東京", "한국", "😀 smile", "'s", "'tis so"),
)
"""Texts that tokenizers might treat otherwise behind another text."""


class Prompts(NamedTuple):
    """What `config_sentence_transformers.json` says of prompts."""

    named: dict[str, str]
    default: str | None = None
    """Name of the prompt of texts that have none of their own."""

    def __bool__(self) -> bool:
        return any(self.named.values())

    def of(self, role: Role) -> str:
        """The prompt before texts of a role; may be empty."""
        own = [self.named[name] for name in _NAMES[role] if name in self.named]
        return own[0] if own else self.named.get(self.default or "", "")

    def replaced(self, document: str | None, query: str | None) -> Prompts:
        """With others in place of these for the roles for which one is given."""
        named = dict(self.named)
        given: dict[Role, str | None] = {"document": document, "query": query}
        for role, prompt in given.items():
            if prompt is not None:
                aliases = [name for name in _NAMES[role][1:] if name in named]
                named |= dict.fromkeys([_NAMES[role][0], *aliases], prompt)
        return self._replace(named=named)

    def config(self) -> dict[str, Any]:
        """The entries of `config_sentence_transformers.json`, with the roles' first names; none without a prompt.

        Where there is a default it is what documents get: sentence-transformers' `encode` would put another before
        texts that are trained and measured without.
        """
        if not self:
            return {}
        named = self.named | {"query": self.of("query"), "document": self.of("document")}
        default = self.default
        if default is not None and named.get(default) != named["document"]:
            default = "document" if named["document"] else None
        return {"prompts": named, "default_prompt_name": default}

    @classmethod
    def read(cls, config: dict[str, Any]) -> Prompts:
        """Of the content of `config_sentence_transformers.json`."""
        named = {name: prompt for name, prompt in (config.get("prompts") or {}).items() if prompt is not None}
        return cls(named, config.get("default_prompt_name"))


class PromptTokens(NamedTuple):
    """Token ids of the prompts, and what the corpus is tokenised with for them."""

    document: tuple[int, ...]
    query: tuple[int, ...]
    tokenizer: CorpusTokenizer
    alone: tuple[int, int] = (0, 0)
    """Tokens of each prompt without a text: what sentence-transformers leaves out where a prompt isn't pooled. One more
    than the prompt's own where a space at its end, left alone, is a token."""


def prompt_tokens(prompts: Prompts, tokenizer: str) -> PromptTokens:
    """Find the token ids that, put before any text's, make what the tokenizer makes of prompt and text together.

    Of the query prompt there are none where counterparts are tokenised with it.

    Args:
        prompts: of the encoder.
        tokenizer: of the encoder, as `tokenizers` JSON.

    Raises:
        ValueError: there are none for documents, whether texts are tokenised as they are or behind a space.
    """
    if not prompts:
        return PromptTokens((), (), CorpusTokenizer(tokenizer))
    whole = Tokenizer.from_str(tokenizer)
    first, second = (len(whole.encode(prompts.of(role), add_special_tokens=False).ids) for role in ROLES)
    alone = first, second
    found: PromptTokens | None = None
    for before in ("", " "):
        document, query = (_ids_before(prompts.of(role), before, whole) for role in ROLES)
        if document is not None and query is not None:
            return PromptTokens(document, query, CorpusTokenizer(tokenizer, before), alone)
        if document is not None and found is None:
            found = PromptTokens(document, (), CorpusTokenizer(tokenizer, before, prompts.of("query")), alone)
    if found is None:
        raise ValueError(
            f"behind the document prompt {prompts.of('document')!r} its tokenizer splits a text differently than the "
            "text alone, as the corpus is tokenised"
        )
    return found


def _ids_before(prompt: str, before: str, tokenizer: Tokenizer) -> tuple[int, ...] | None:
    """What, put before the ids of any text behind `before`, gives those of the text behind the prompt, if anything."""
    prefixes: set[tuple[int, ...]] = set()
    for text in _TEXTS:
        together = tokenizer.encode(prompt + text, add_special_tokens=False).ids
        behind = tokenizer.encode(before + text, add_special_tokens=False).ids
        count = len(together) - len(behind)
        if count < 0 or together[count:] != behind:
            return None
        prefixes.add(tuple(together[:count]))
    return prefixes.pop() if len(prefixes) == 1 else None
