"""The command `infocse`: each of its commands is a file of `infocse_ray/commands/`, imported when it is called."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from infocse_ray import __version__

COMMANDS = {
    "demo": "see what it does, on the documentation of the Python packages installed here",
    "pretrain": "adapt an encoder to a corpus without labels (InfoCSE)",
    "finetune": "train an encoder on documents and their counterparts (headlines, queries, ...)",
    "plusplus": "alternate between pretrain and finetune (InfoCSE++)",
    "evaluate": "score an encoder on a corpus, or compare two",
    "explorer": "make the page again that shows a run's clusters, with other documents",
    "embed": "write the vectors of a corpus: Parquet, or a Lance dataset",
    "search": "search a corpus that was embedded; a local page, two encoders side by side",
    "pairs": "look at the pairs an encoder would be trained on",
    "prepare": "only read, check, split and tokenise a corpus",
    "export": "put an encoder into ONNX or OpenVINO, 8-bit or shorter, and say what that loses",
    "push": "put an encoder into a repository of the Hugging Face hub",
    "sweep": "try settings side by side",
    "reproduce": "make the paper's tables on your own corpora, with all its baselines",
    "report": "make a run's report page again, or compare several runs on one page",
    "runs": "list the runs in a storage, with size and verdict",
    "clean": "find, and remove, what no run refers to",
    "benchmark": "measure speed and memory on this machine",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status.

    Args:
        argv: the command's name and its arguments; None for those of the process.
    """
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        # While libraries are loaded, or of a command of a moment: others listen for it, and say what is kept.
        print("infocse: stopped by Ctrl-C", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read what is printed, such as `head`, has seen enough; what is left is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(argv: Sequence[str] | None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help", *argv[2:]]
    if not argv or argv[0] in ("-h", "--help"):
        print(_help())
        return 0 if argv else 2
    name = argv[0]
    if name == "--version":
        print(f"infocse {__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f": did you mean {near[0]}?" if near else f"; there are {', '.join(COMMANDS)}"
        print(f"infocse: error: {name} is no command{meant} (see --help)", file=sys.stderr)
        return 2
    return importlib.import_module(f"infocse_ray.commands.{name}").main(argv[1:], prog=f"infocse {name}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {does}" for name, does in COMMANDS.items()]
    return "\n".join(
        [
            "usage: infocse COMMAND [--config NAME] [--SETTING VALUE ...]",
            "",
            "Teach a sentence encoder your documents, without labels, at any scale.",
            "",
            "Commands:",
            *lines,
            "",
            "infocse COMMAND --help says what a command does and needs, with an example.",
            "",
            "Example:",
            "  infocse pretrain --name news --encoder.model sentence-transformers/all-MiniLM-L6-v2 \\",
            "      --corpus.source 'news/*.parquet' --corpus.text body",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
