"""What `explorer.json` says of a run, written by hand."""

from __future__ import annotations

from typing import Any

EVIL = "evil</script><img src=x onerror=alert(1)>"
"""An id that would be a program, were it not shown as text; its sentences are no better."""


def document(doc_id: str, sentences: list[str], first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """A document of two iterations."""
    whole = {"copies": [], "same": True}
    return {
        "id": doc_id,
        "named": False,
        "sentences": sentences,
        "sentences_in_all": len(sentences),
        "iterations": {"1": whole | first, "2": whole | second},
    }


def content() -> dict[str, Any]:
    """Three documents, two iterations."""
    sea = document(
        "doc-sea",
        ["Ships sail.", "The tide rises.", "A ship has an anchor.", "Bread needs flour.", "Ships sail."],
        {"clusters": [0, 1, 0, 1, 0], "edges": [[0, 2, 0.8], [1, 3, 0.1]], "copies": [[4, 0]]},
        {"clusters": [0, 0, 0, 1, 0], "edges": [[0, 2, 0.9], [1, 2, 0.5]], "copies": [[4, 0]]},
    )
    court = document(
        "doc court/1+1=2&more",
        ["The judge speaks.", "A witness saw a ship.", "The jury leaves."],
        {"clusters": [0, 0, 1], "edges": [[0, 1, 0.4]]},
        {"clusters": [0, 0, 1], "edges": [[0, 1, 0.45]], "same": False},
    )
    evil = document(
        EVIL,
        ["See <script>document.title = 'broken'</script> here.", "</script><img src=x onerror=alert(2)> & \u2028 more"],
        {"clusters": [0, 0], "edges": [[0, 1, -0.2]]},
        {"clusters": [0, 0], "edges": [[0, 1, -0.1]]},
    )
    evil["sentences_in_all"] = 1_234
    return {
        "name": "news",
        "clustering": "partition",
        "rule": "An edge joins a sentence and the sentence most similar to it.",
        "iterations": [{"iteration": 1}, {"iteration": 2}],
        "documents": [sea, court, evil],
    }
