"""Settings of `infocse export`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.corpus import Corpus
from infocse_ray.settings.section import Metric, Section

Format = Literal["onnx", "openvino", "torch"]


class CorpusToCheckOn(Corpus):
    """corpus: the documents whose questions the export is checked on; not needed for the model of a run."""

    source: str | list[str] | None = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default=None, description="Files, globs or folders, as corpus.source of `infocse pretrain`. Default: the run's."
    )

    @field_validator("source")
    @classmethod
    def _some_source(cls, value: str | list[str] | None) -> str | list[str] | None:
        return value if value is None else Corpus._some_source(value)


class Export(Section):
    """Put an encoder into another format."""

    model: str = Field(description="Encoder to export: a run's <storage>/<name>/model, a folder, a URI or a hub name.")
    format: Format = Field(
        default="onnx",
        description="`onnx`: a graph for ONNX Runtime. `openvino`: one for OpenVINO. `torch`: a folder of "
        "sentence-transformers, with `dimensions`.",
    )
    int8: bool = Field(
        default=False,
        description="Weights in 8 bits: a quarter of the size. ONNX Runtime computes with them in 8 bits, OpenVINO as "
        "it finds best.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        description="Leading components of whitened vectors to keep, scaled to length 1 again. Default: all.",
    )
    output: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or URI to write; one that this command wrote for the same encoder may have more formats "
        "in it. Default: beside the model, <model>_<format>, _<dimensions> behind it where they are cut; for torch "
        "<model>_<dimensions>.",
    )
    check: bool = Field(
        default=True, description="Ask the original and the export the validation questions, and say what is lost."
    )
    metric: Metric | None = Field(
        default=None, description="Metric whose loss is printed. Default: the run's validate.metric, else mrr."
    )
    max_length: int | None = Field(
        default=None,
        ge=4,
        description="Tokens that texts are cut to in the check, as encoder.max_length of `infocse pretrain`. Default: "
        "the run's, else 32.",
    )
    max_documents: int | None = Field(
        default=None,
        ge=1,
        description="About how many documents ask in the check. Default: the run's validate.max_documents, else "
        "10,000.",
    )
    storage: str = Field(
        default="runs", min_length=1, description="Folder or URI where a corpus named here is kept tokenised."
    )
    corpus: CorpusToCheckOn = Field(default_factory=CorpusToCheckOn)

    @model_validator(mode="after")
    def _fit_each_other(self) -> Export:
        if self.format == "torch" and self.dimensions is None:
            raise ValueError("format = torch: is what the model is in already; give dimensions, or another format")
        if self.format == "torch" and self.int8:
            raise ValueError("int8 = true: is for onnx and openvino; name one of these as format")
        unasked = {"metric": self.metric, "max_documents": self.max_documents, "corpus.source": self.corpus.source}
        for name, value in unasked.items() if not self.check else ():
            if value is not None:
                raise ValueError(f"{name} = {value!r}: is for the check; leave it out, or check = false")
        # By their values: a printed configuration names all.
        default = CorpusToCheckOn().model_dump()
        given = sorted(name for name, value in self.corpus.model_dump().items() if value != default[name])
        if self.corpus.source is None and given:
            named = ", ".join(f"corpus.{name}" for name in given)
            raise ValueError(f"{named}: says nothing without corpus.source; name the documents with it")
        return self
