"""Models of the ``transformers`` package: loading them without running code of theirs, and their texts and pictures."""

from attsvm.pretrained.inputs import SPECIAL, Input, has_decoder, has_tokenizer, read_input, read_texts, tokenized
from attsvm.pretrained.loading import check_models, load_pretrained, load_pretrained_model, quiet_transformers, silent
from attsvm.pretrained.models import checkpoints, load_model, random_twin, tower

__all__ = [
    "SPECIAL",
    "Input",
    "check_models",
    "checkpoints",
    "has_decoder",
    "has_tokenizer",
    "load_model",
    "load_pretrained",
    "load_pretrained_model",
    "quiet_transformers",
    "random_twin",
    "read_input",
    "read_texts",
    "silent",
    "tokenized",
    "tower",
]


def __dir__() -> list[str]:
    return sorted(__all__)
