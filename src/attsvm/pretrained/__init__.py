"""Models of the ``transformers`` package: loading them without running code of theirs, and their texts and pictures."""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "Input",
    "has_decoder",
    "check_models",
    "checkpoints",
    "has_tokenizer",
    "load_model",
    "load_pretrained",
    "load_pretrained_model",
    "quiet_transformers",
    "random_twin",
    "read_input",
    "read_texts",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
