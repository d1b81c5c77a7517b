"""What calls return: a run's result, scores, a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop.shown_in_notebook import result_table
from infocse_ray.settings import Encoder
from infocse_ray.settings.export import Export
from infocse_ray.settings.nested import nested
from infocse_ray.settings.push import Push
from infocse_ray.settings.validated import validated
from infocse_ray.storage.checksums import file_digest
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


_Asked = TypeVar("_Asked", Export, Push)


class _WithoutCredentials:
    """Shown with its fields, but for the credentials that URIs in them may have."""

    def __repr__(self) -> str:
        shown = (field.name for field in dataclasses.fields(self) if field.repr)  # pyright: ignore
        fields = ((name, getattr(self, name)) for name in shown)
        return redacted(f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a run; a notebook shows it as a table."""

    folder: Storage
    """<storage>/<name>."""
    metrics: dict[str, Any]
    """The content of `metrics.json`: every iteration's scores, counts and seconds, the settings, versions."""
    report: str | None = None
    """The report page, `report.html`: a path, or a URI; None where it couldn't be written."""
    files: dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """Digests of what the encoder is loaded from, by name; loading looks whether they are those still."""

    @property
    def model_path(self) -> str:
        """The adapted encoder: a folder for SentenceTransformer(...), or a URI."""
        return (self.folder / "model").uri

    @property
    def verdict(self) -> str:
        """WIN, LEVEL, LOSS or START RETURNED, against the whitened start; on the test documents if there are any."""
        return self.metrics["verdict"]["label"]

    @property
    def summary(self) -> str:
        """The verdict in a line, with scores, their difference and its 95 % interval."""
        return self.metrics["verdict"]["line"]

    def __repr__(self) -> str:
        return redacted(f"RunResult({self.model_path!r}, {self.summary!r})")

    def _repr_html_(self) -> str:
        return result_table(self.metrics, self.model_path)

    def sentence_transformer(self) -> SentenceTransformer:
        """The adapted encoder in sentence-transformers.

        Raises:
            ImportError: it isn't installed.
            ValueError: the run's folder has another encoder by now.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError("sentence_transformer() needs it: pip install sentence-transformers") from error
        return SentenceTransformer(str(self._local()))

    def encoder(self) -> SentenceEncoder:
        """The adapted encoder as a torch module, in fp32 on the CPU.

        Raises:
            ValueError: the run's folder has another encoder by now.
        """
        length = self.metrics["settings"]["encoder"]["max_length"]
        shape = Encoder(model=self.model_path, max_length=length)
        return load_encoder(self._local(), shape, cosine=False)

    def export(self, **settings: Any) -> str:
        """Write the adapted encoder in another form, as `infocse export` does, and say what that loses.

        Args:
            settings: of `infocse export --help all` but `model`, such as `format="openvino", int8=True`.

        Returns:
            The folder that has it, or its URI.

        Raises:
            ValueError: a setting doesn't fit, a package is missing, or the run's folder has another encoder by now.
        """
        from infocse_ray.export.run import export

        return export(self._asked_for(Export, settings)).folder.uri

    def push(self, repo: str, **settings: Any) -> str | None:
        """Put the adapted encoder into a repository of the Hugging Face hub, as `infocse push` does.

        Args:
            repo: user/name or organisation/name; made if it isn't there.
            settings: of `infocse push --help all` but `model`, such as `private=True`, or `dry_run=True`.

        Returns:
            Where it can be looked at; None of a dry run.

        Raises:
            ValueError: a setting doesn't fit, there is no token, the hub refuses, or the run's folder has another
                encoder by now.
        """
        from infocse_ray.export.push import push

        return push(self._asked_for(Push, {"repo": repo, **settings}))

    def _asked_for(self, kind: type[_Asked], settings: Mapping[str, Any]) -> _Asked:
        """Settings of a command, of which the encoder is this result's.

        Raises:
            ValueError: they don't fit, or it isn't there any more.
        """
        if "model" in settings:
            raise ValueError("model: is this result's; leave it out")
        checked = validated(kind, nested({"model": self.model_path, **settings}))
        self._local()
        return checked

    def _local(self) -> Path:
        """The encoder's folder on this machine."""
        folder = resolve_encoder(self.model_path, "model_path")
        for name, expected in self.files.items():
            if not (folder / name).exists() or file_digest(folder / name) != expected:
                raise ValueError(
                    f"{self.folder / 'model'}: isn't this result's encoder any more ({name} is another, or gone): a "
                    "run of the same name wrote it since; give runs names of their own, or take the later run's result"
                )
        return folder


@dataclasses.dataclass(frozen=True, repr=False)
class Scores(_WithoutCredentials):
    """The scores of an encoder."""

    metrics: dict[str, float]
    """recall@5, recall@10, recall@20 and mrr with `_low` and `_high`, their 95 % interval; queries; candidates."""
    ranks: str
    """The folder with every question's rank: a path, or a URI."""
    comparison: dict[str, Any] | None = dataclasses.field(default=None, repr=False)
    """Of two encoders, the content of `comparison.json`: scores of both, and the verdict as `metrics.json` of a run has
    it; else None."""

    @property
    def verdict(self) -> str | None:
        """WIN, LEVEL or LOSS, against the encoder that it was compared with; None without one."""
        return None if self.comparison is None else self.comparison["verdict"]["label"]

    @property
    def summary(self) -> str | None:
        """The verdict in a line, with the difference and its 95 % interval."""
        return None if self.comparison is None else self.comparison["verdict"]["line"]


@dataclasses.dataclass(frozen=True, repr=False)
class SuiteScores(_WithoutCredentials):
    """What encoders scored on suites."""

    rows: list[dict[str, Any]]
    """`suite`, `dataset`, `read_as`, `measure`, `after`, `before` and `difference` (each `value`, `low` and `high`, or
    None), `questions`, `main`: whether the data set is judged by this measure."""
    table: str
    """The tables as Markdown."""
    folder: str
    """The folder with suites.json, which also says where the scores of single questions are, and suites.md."""


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult(_WithoutCredentials):
    """The result of a sweep."""

    folder: str
    """<storage>/<name>, with sweep.md, sweep.json, the plot and best.yaml."""
    failed: int
    """Trials without a result; their reasons are in sweep.md."""
