"""Strategies by name."""

from __future__ import annotations

from infocse_ray.encoder.layout import Pooling
from infocse_ray.encoder.lexicon import Lexicon
from infocse_ray.positives.conpono import CONPONO
from infocse_ray.positives.consert import ConSERT
from infocse_ray.positives.cpc import CPC
from infocse_ray.positives.declutr import DeCLUTR
from infocse_ray.positives.ict import ICT
from infocse_ray.positives.idc import Idc
from infocse_ray.positives.mirror_bert import MirrorBERT
from infocse_ray.positives.simcse import SimCSE
from infocse_ray.positives.strategy import Plain, Strategy
from infocse_ray.settings import Settings, StrategyName


def strategy_of(name: StrategyName, settings: Settings, lexicon: Lexicon) -> Strategy | None:
    """The strategy of a name with its settings; None for `none`, which trains nothing.

    Raises:
        ValueError: it asks for what the encoder doesn't have.
    """
    train = settings.train
    cosine = train.similarity == "cosine"
    match name:
        case "idc":
            return Idc(train.positive, train.temperature, cosine, lexicon)
        case "simcse":
            return SimCSE(settings.simcse, lexicon)
        case "consert":
            return ConSERT(settings.consert, lexicon)
        case "mirror_bert":
            return MirrorBERT(settings.mirror_bert, lexicon)
        case "ict":
            return ICT(settings.ict, train.temperature, cosine, lexicon)
        case "cpc":
            return CPC(settings.cpc, train.temperature, lexicon)
        case "declutr":
            return DeCLUTR(settings.declutr, lexicon)
        case "conpono":
            return CONPONO(settings.conpono, train.temperature, lexicon)
        case "none":
            return None


def pooling_of(name: StrategyName) -> Pooling:
    """What a method publishes for a backbone that has no pooling of its own."""
    published: dict[str, Pooling] = {"simcse": SimCSE.pooling, "ict": ICT.pooling, "conpono": CONPONO.pooling}
    return published.get(name, Plain.pooling)
