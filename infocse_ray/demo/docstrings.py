"""A named corpus that needs no download: the docstrings of the Python packages installed beside the program.

A document is the prose of one docstring, split into sentences; its counterpart is the docstring's summary
line, which is taken out of the document. The sources are read, never imported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from infocse_ray.corpus.sentences import split_sentences
from infocse_ray.demo.prose import docstring_prose, is_prose

# Only what the program's own requirements bring in: packages of its optional extras are left out, so that the
# corpus does not depend on which extras are installed.
DEFAULT_PACKAGES: tuple[str, ...] = (
    "click",
    "fsspec",
    "google",
    "huggingface_hub",
    "jinja2",
    "jsonschema",
    "mpmath",
    "networkx",
    "numpy",
    "packaging",
    "pandas",
    "pyarrow",
    "pydantic",
    "ray",
    "requests",
    "safetensors",
    "scipy",
    "sympy",
    "tensorboardX",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "urllib3",
)

_SKIPPED_FOLDERS = frozenset(
    (
        *("tests", "test", "testing", "_testing"),
        # Copies of other packages, under the various names they are kept by.
        *("_vendor", "_vendored", "vendored", "thirdparty", "third_party", "thirdparty_files"),
        *("externals", "extern", "site-packages", "node_modules", "__pycache__"),
    )
)
_INNER_DOT = re.compile(r"(?<=[\w)\]])\.(?=[A-Za-z_])")
_STAND_IN = "\ue000"
_ATTACHING_CALLS = frozenset(["add_newdoc", "add_docstr", "_add_docstr", "add_docstr_all"])


def docstring_documents(
    packages: Sequence[str] = DEFAULT_PACKAGES, min_sentences: int = 5, processes: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield the docstrings of installed packages as documents, sorted by id.

    Documents that repeat the sentences or the summary line of a document before them (inherited, aliased and
    generated documentation) are left out, so every counterpart occurs once in the corpus.

    Args:
        packages: names of top-level packages or modules. Those that are not installed are passed over, and so
            are tests, vendored code and files that are not valid Python.
        min_sentences: documents with fewer sentences, not counting the summary line, are left out.
        processes: how many read packages side by side; the result is the same.

    Yields:
        ``{"id": dotted name, "sentences": list of str, "counterpart": str, "package": str}``.

    Raises:
        ValueError: if a package name is dotted (finding a submodule would import its parent), or if
            `min_sentences` is less than 1.
    """
    if min_sentences < 1:
        raise ValueError(f"min_sentences is {min_sentences}; it must be at least 1")
    documents: dict[str, dict[str, Any]] = {}
    names = list(dict.fromkeys(packages))
    read = functools.partial(_package_documents, min_sentences=min_sentences)
    with contextlib.ExitStack() as stack:
        # Spawned, not forked: the caller may have threads.
        pool = ProcessPoolExecutor(processes, get_context("spawn")) if processes > 1 else None
        for of_package in stack.enter_context(pool).map(read, names) if pool else map(read, names):
            for name, document in of_package.items():
                documents.setdefault(name, document)
    seen_bodies: set[bytes] = set()
    seen_summaries: set[str] = set()
    for name in sorted(documents):
        document = documents.pop(name)
        body = _digest("\n".join(sorted(map(_normalised, document["sentences"]))))
        summary = _normalised(str(document["counterpart"]))
        if body in seen_bodies or summary in seen_summaries:
            continue
        seen_bodies.add(body)
        seen_summaries.add(summary)
        yield document


def write_docstrings(
    path: str | os.PathLike[str],
    max_documents: int | None = None,
    packages: Sequence[str] = DEFAULT_PACKAGES,
    processes: int = 1,
) -> int:
    """Write the documents of `docstring_documents` as JSON Lines, sorted by id.

    The file is written beside `path` and renamed over it, so a reader sees the old file or the whole new one.

    Args:
        path: the file to write; its folder must exist.
        max_documents: keep at most so many documents. They are chosen by a hash of the id, so the choice is
            the same on every machine with the same versions of the packages, and a smaller choice is a subset
            of a larger one.
        packages: as for `docstring_documents`.
        processes: as for `docstring_documents`.

    Returns:
        The number of documents written.

    Raises:
        ValueError: if `max_documents` is negative, or as `docstring_documents` raises it.
        OSError: if the file cannot be written; a file that was at `path` is then unchanged.
    """
    if max_documents is not None and max_documents < 0:
        raise ValueError(f"max_documents is {max_documents}; it must not be negative")
    documents = list(docstring_documents(packages, processes=processes))
    if max_documents is not None:
        documents.sort(key=lambda document: _digest(str(document["id"])))
        documents = sorted(documents[:max_documents], key=lambda document: str(document["id"]))
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for document in documents:
                file.write(json.dumps(document, ensure_ascii=False) + "\n")
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return len(documents)


def _package_documents(package: str, min_sentences: int) -> dict[str, dict[str, Any]]:
    """The documents of one package by name; of a name that occurs twice, the first that makes a document."""
    documents: dict[str, dict[str, Any]] = {}
    for name, docstring in _package_docstrings(package):
        if name not in documents and (document := _document(name, docstring, package, min_sentences)) is not None:
            documents[name] = document
    return documents


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _normalised(sentence: str) -> str:
    return " ".join(sentence.lower().split()).rstrip(".")


def _document(name: str, docstring: str, package: str, min_sentences: int) -> dict[str, Any] | None:
    summary, paragraphs = docstring_prose(docstring)
    if not is_prose(summary) or not paragraphs:
        return None
    seen = {_normalised(summary), *map(_normalised, _split(summary))}
    sentences = []
    for sentence in _split("\n\n".join(paragraphs)):
        key = _normalised(sentence)
        if key not in seen and is_prose(sentence):
            seen.add(key)
            sentences.append(sentence)
    if len(sentences) < min_sentences:
        return None
    return {"id": name, "sentences": sentences, "counterpart": summary, "package": package}


def _split(text: str) -> list[str]:
    # The splitter takes the dot of `torch.Tensor` for the end of a sentence, as in text that lost a space.
    text = _INNER_DOT.sub(_STAND_IN, text)
    return [sentence.replace(_STAND_IN, ".") for sentence in split_sentences(text)]


def _package_docstrings(package: str) -> Iterator[tuple[str, str]]:
    for module, file in _source_files(package):
        try:
            # Parsing warns of invalid escapes in other people's files, which is no concern of the caller.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield from _tree_docstrings(tree, module)


def _source_files(package: str) -> Iterator[tuple[str, Path]]:
    if "." in package:
        raise ValueError(f"{package!r} is not the name of a top-level package")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield package, Path(spec.origin)
        return
    for location in sorted(spec.submodule_search_locations):
        for folder, subfolders, files in os.walk(location):
            subfolders[:] = sorted(set(subfolders) - _SKIPPED_FOLDERS)
            inner = Path(folder).relative_to(location).parts
            for name in sorted(files):
                stem = name.removesuffix(".py")
                if stem == name or stem.startswith("test_") or stem.endswith("_test") or stem == "conftest":
                    continue
                parts = (package, *inner) if stem == "__init__" else (package, *inner, stem)
                yield ".".join(parts), Path(folder, name)


def _tree_docstrings(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(tree, clean=False)
    if docstring:
        yield module, docstring
    yield from _body_docstrings(tree.body, module, module)


def _body_docstrings(body: Sequence[ast.AST], prefix: str, module: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}.{node.name}"
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield name, docstring
            if isinstance(node, ast.ClassDef):
                yield from _body_docstrings(node.body, name, module)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _body_docstrings(getattr(node, part, []), prefix, module)
            for handler in getattr(node, "handlers", []):
                yield from _body_docstrings(handler.body, prefix, module)
        elif isinstance(node, ast.Expr | ast.Assign):
            yield from _attached_docstrings(node, prefix, module)


def _attached_docstrings(node: ast.Expr | ast.Assign, prefix: str, module: str) -> Iterator[tuple[str, str]]:
    """Yield the docstrings that a statement attaches to a compiled object: `add_docstr(torch.abs, "...")`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(target, ast.Attribute) and target.attr == "__doc__":
        docstring = _literal(node.value)
        if docstring:
            yield f"{prefix}.{ast.unparse(target.value)}", docstring
        return
    call = node.value
    if not isinstance(call, ast.Call) or len(call.args) < 2:
        return
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    if function not in _ATTACHING_CALLS:
        return
    names = [_literal(argument) for argument in call.args[:-1]]
    last = call.args[-1]
    if function == "add_newdoc":
        # add_newdoc(place, name, doc), or (name, doc) in the package that the module belongs to.
        if any(name is None for name in names):
            return
        place = ".".join(map(str, names)) if len(names) > 1 else f"{module.rpartition('.')[0]}.{names[0]}"
        if not place.startswith(module.partition(".")[0] + "."):
            return
    elif isinstance(target, ast.Name):
        place = f"{prefix}.{target.id}"
    elif isinstance(call.args[0], ast.Attribute):
        place = ast.unparse(call.args[0])
        if not place.startswith(module.partition(".")[0] + "."):
            place = f"{prefix}.{place}"
    elif names[0] is not None:
        place = f"{prefix}.{names[0]}"
    else:
        return
    pairs = last.elts if isinstance(last, ast.List) else [last]
    for pair in pairs:
        if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
            attribute, docstring = _literal(pair.elts[0]), _literal(pair.elts[1])
            if attribute and docstring:
                yield f"{place}.{attribute}", docstring
        else:
            docstring = _literal(pair)
            if docstring:
                yield place, docstring


def _literal(node: ast.AST) -> str | None:
    """Return the literal text of an expression: of `"..." + x` and `"...".format(...)`, the literal part."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = _literal(node.left)
        return None if left is None else left + (_literal(node.right) or "")
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "strip", "lstrip", "rstrip"):
            return _literal(node.func.value)
        function = getattr(node.func, "attr", getattr(node.func, "id", None))
        if function in ("dedent", "cleandoc") and node.args:
            return _literal(node.args[0])
    return None
