"""Put an encoder into the format that production takes: ONNX or OpenVINO, with 8-bit weights, with fewer dimensions.

Pooling, whitening and normalisation are inside the graph, and sentence-transformers' backends load the folder. The
export is checked against the original: both answer the validation questions of the run whose model it is (or of the
corpus that is named), and what is lost is printed and written into the folder's card and export.json. `--format torch
--dimensions N` writes a folder of sentence-transformers with shorter vectors.

Needs an extra: pip install 'infocse-ray[onnx]' or 'infocse-ray[openvino]'

Examples:
  infocse export --model runs/news/model --format onnx --int8
  infocse export --model runs/news/model --format torch --dimensions 128 --output small
  infocse export --model sentence-transformers/all-MiniLM-L6-v2 --format openvino --output fast \\
      --corpus.source news.parquet
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.export import Export

_ESSENTIALS = ("model", "format", "int8", "dimensions", "output", "check", "corpus.source")


def main(argv: Sequence[str] | None = None, prog: str = "infocse export") -> int:
    """Run it; the exit status."""
    run_job(Export, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Export) -> None:
    from infocse_ray.export.run import export

    export(settings)
