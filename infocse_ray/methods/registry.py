"""Methods by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from infocse_ray.encoder.layout import Pooling
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.conpono import CONPONO
from infocse_ray.methods.consert import ConSERT
from infocse_ray.methods.cpc import CPC
from infocse_ray.methods.declutr import DeCLUTR
from infocse_ray.methods.ict import ICT
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.method import Method, Plain
from infocse_ray.methods.mirror_bert import MirrorBERT
from infocse_ray.methods.mlm_head import trained_head
from infocse_ray.methods.simcse import SimCSE
from infocse_ray.methods.tsdae import TSDAE
from infocse_ray.settings import MethodName, Settings


class Use(NamedTuple):
    """What a method is trained for, besides what the settings say."""

    initializes: bool = False
    """Whether it makes the encoder that the first annotation is made with."""
    folder: Path | None = None
    """Of the encoder that is trained, as it came; None: nothing is known of it but the lexicon."""


class MethodSpec(NamedTuple):
    """A method, as settings name it."""

    title: str
    """With its source, for people."""
    pooling: Pooling
    """Its published pooling, for a backbone that has none of its own."""
    make: Callable[[Settings, EncoderSpec, Use], Method]
    """Makes it of the settings of a run; raises a ValueError if it asks for what the encoder doesn't have."""


METHODS: dict[MethodName, MethodSpec] = {
    "idc": MethodSpec("InfoCSE (Yang et al., arXiv 2202.13802)", Idc.pooling, lambda s, x, _: Idc(s.train, x)),
    "simcse": MethodSpec("SimCSE (Gao et al. 2021)", SimCSE.pooling, lambda s, x, _: SimCSE(s.simcse, x)),
    "consert": MethodSpec("ConSERT (Yan et al. 2021)", ConSERT.pooling, lambda s, x, _: ConSERT(s.consert, x)),
    "mirror_bert": MethodSpec(
        "Mirror-BERT (Liu et al. 2021)", MirrorBERT.pooling, lambda s, x, _: MirrorBERT(s.mirror_bert, x)
    ),
    "ict": MethodSpec("the Inverse Cloze Task (Lee et al. 2019)", ICT.pooling, lambda s, x, _: ICT(s.ict, s.train, x)),
    "cpc": MethodSpec(
        "Contrastive Predictive Coding (van den Oord et al. 2018)", CPC.pooling, lambda s, x, _: CPC(s.cpc, s.train, x)
    ),
    "declutr": MethodSpec(
        "DeCLUTR (Giorgi et al. 2021)", DeCLUTR.pooling, lambda s, x, use: _declutr(s, x, use.folder)
    ),
    "conpono": MethodSpec(
        "CONPONO (Iter et al. 2020)",
        CONPONO.pooling,
        lambda s, x, use: CONPONO(s.conpono, s.train, x, use.initializes),
    ),
    "tsdae": MethodSpec("TSDAE (Wang, Reimers and Gurevych 2021)", TSDAE.pooling, lambda s, x, _: TSDAE(s.tsdae, x)),
}


def _declutr(settings: Settings, spec: EncoderSpec, folder: Path | None) -> DeCLUTR:
    method = DeCLUTR(settings.declutr, spec)  # first, for it may refuse
    if folder is None or not settings.declutr.mask:
        return method
    return DeCLUTR(settings.declutr, spec, trained_head(folder, spec.vocabulary))


def method_of(name: MethodName, settings: Settings, spec: EncoderSpec, use: Use = Use()) -> Method | None:  # noqa: B008
    """The method of a name with its settings; None for `none`, which trains nothing.

    Raises:
        ValueError: it asks for what the encoder doesn't have.
    """
    return METHODS[name].make(settings, spec, use) if name in METHODS else None


def pooling_of(name: MethodName) -> Pooling:
    """A method's published pooling, for a backbone that has none of its own."""
    return METHODS[name].pooling if name in METHODS else Plain.pooling


def title_of(name: MethodName) -> str:
    """A method with its source, for people."""
    return METHODS[name].title if name in METHODS else "no training"
