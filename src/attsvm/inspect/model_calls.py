"""Calling a model on a batch, some sequences at a time, without changing the model."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from attsvm._utils.devices import find_torch_device
from attsvm._utils.extensions import import_object
from attsvm._utils.files import reason
from attsvm._utils.memory import enough_memory
from attsvm._utils.shapes import Int
from attsvm.errors import ProblemError
from attsvm.pretrained import has_decoder

CHUNK_LOGITS = 2**24
"""Largest number of attention probabilities (of 12 heads) in one call; the model holds a few copies of them."""


def num_sequences(batch: Any) -> int | None:
    """Sequences of a batch; None for a batch that is passed to the model in one piece, because they are not known.

    Raises ProblemError if the batch holds no tensor, or is empty.
    """
    first = _first_tensor(batch)
    if first is None or first.ndim == 0:
        raise ProblemError(
            f"batch: expected the arguments of the model, got {type(batch).__name__} without tensors; tokenizers make "
            'tensors with return_tensors="pt"'
        )
    if 0 in first.shape:
        raise ProblemError(f"batch: expected at least one token, got a tensor of shape {tuple(first.shape)}")
    return len(first) if _has_pieces(batch) else None


def chunks(batch: Any) -> Iterator[Any]:
    """The batch in pieces of a few sequences, if each tensor of a mapping has an entry for each; else in one piece."""
    first = _first_tensor(batch)
    if first is None or not _has_pieces(batch):
        yield batch
        return
    n, T = len(first), first.shape[1] if first.ndim == 2 else 512
    step = max(1, CHUNK_LOGITS // (T * T * 12))
    for at in range(0, n, step):
        yield {
            key: value[at : at + step] if isinstance(value, Tensor) and value.ndim and len(value) == n else value
            for key, value in batch.items()
        }


def _has_pieces(batch: Any) -> bool:
    """Whether each tensor of a mapping has an entry for each sequence, or one for all."""
    if not isinstance(batch, Mapping):
        return False
    tensors = [value for value in batch.values() if isinstance(value, Tensor) and value.ndim]
    # the patches of all pictures may be in one row, and a text may have several pictures
    packed = any("grid" in name or "shapes" in name for name in batch)
    return not packed and all(len(value) in (1, len(tensors[0])) for value in tensors)


def call_model(model: nn.Module, batch: Any) -> Any:
    """The output of the model for a batch: by name, in order, or with one argument.

    Raises ProblemError if the model does not accept the batch.
    """
    sequences = num_sequences(batch) or 1
    try:
        with enough_memory(device_of(model), "sequences in a call of the model", sequences):
            if isinstance(batch, Mapping):
                # a model adds its keys to a cache, and runs more than once
                caches = {name: deepcopy(value) for name, value in batch.items() if hasattr(value, "get_seq_length")}
                return model(**{**_with_additive_masks(model, batch), **caches})
            if isinstance(batch, tuple | list):
                return model(*batch)
            return model(batch)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ProblemError):
            raise
        missing = isinstance(batch, Mapping) and has_decoder(model) and not any("decoder" in one for one in batch)
        hint = "; its decoder needs decoder_input_ids" if missing and "labels" not in batch else ""
        raise ProblemError(f"batch: the model does not accept it ({reason(error)}){hint}") from error


def _with_additive_masks(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch whose boolean masks of pairs, True where a query may attend, have −∞ elsewhere.

    Eager attention of ``transformers`` adds a mask to the logits as it is; ``scaled_dot_product_attention``, which such
    masks are written for, takes both kinds.
    """
    if not getattr(model, "_supports_sdpa", False):  # its masks may mean something else
        return dict(batch)
    dtype = next((one.dtype for one in model.parameters() if one.is_floating_point()), torch.float32)

    def additive(name: str, given: Any) -> Any:
        if not (name.endswith("mask") and isinstance(given, Tensor) and given.ndim == 4 and given.dtype == torch.bool):
            return given
        return torch.zeros_like(given, dtype=dtype).masked_fill(~given, torch.finfo(dtype).min)

    return {name: additive(name, given) for name, given in batch.items()}


@contextlib.contextmanager
def evaluating(model: nn.Module, attention: str = "eager") -> Iterator[None]:
    """Switch dropout off and an implementation of attention on; both are restored afterwards.

    It replaces the implementations of ``transformers``. A function that a user has registered remains, because it may
    change what the model attends to.
    """
    training = [module for module in model.modules() if module.training]
    before = _implementations(model)
    model.eval()
    try:
        if any(name not in (None, attention) and not _is_foreign(name) for _, name in before):
            inner: set[int] = set()
            for module in model.modules():
                set_implementation: Any = getattr(module, "set_attn_implementation", None)
                if id(module) not in inner and set_implementation is not None:
                    set_implementation(attention)
                    inner |= {id(part) for part in module.modules()}
            changed = {id(config): new for config, new in _implementations(model)}
            for config, name in before:
                if name is not None:  # such a configuration may not be that of a model
                    config._attn_implementation = name if _is_foreign(name) else changed[id(config)]
        yield
    finally:
        for config, name in before:  # outer ones first, because each sets those inside it
            if config._attn_implementation != name:
                config._attn_implementation = name
        for module in training:
            module.training = True


class Uncompiled:
    """Runs what ``torch.compile`` compiled as it is written, so that all hooks run. Contexts may end in any order."""

    _open: ClassVar[int] = 0
    _stance: ClassVar[Any] = None  # of the compiler, while a context is open

    def __enter__(self) -> None:
        if not Uncompiled._open and "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            Uncompiled._stance = torch.compiler.set_stance("force_eager")  # new in PyTorch 2.6
        Uncompiled._open += 1

    def __exit__(self, *_: object) -> None:
        Uncompiled._open -= 1
        if not Uncompiled._open and Uncompiled._stance is not None:
            Uncompiled._stance.__exit__(None, None, None)
            Uncompiled._stance = None


def _implementations(model: nn.Module) -> list[tuple[Any, str | None]]:
    """The configurations inside a model, outer ones first, and the implementation of attention that each names."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    named = ((config, getattr(config, "_attn_implementation", config)) for config in configs.values())
    return [(config, name) for config, name in named if name is None or isinstance(name, str)]


def _is_foreign(name: str | None) -> bool:
    """Whether an implementation of attention is a function that ``transformers`` does not have itself."""
    function = import_object("transformers.modeling_utils:ALL_ATTENTION_FUNCTIONS").get(name)
    module = getattr(getattr(function, "func", function), "__module__", "transformers")
    return module.partition(".")[0] != "transformers"


@contextlib.contextmanager
def placed(model: nn.Module, device: str | None) -> Iterator[None]:
    """Move a model to a device, and back afterwards; without a name, leave it where it is."""
    if device is None:
        yield
        return
    before, home = device_of(model), find_torch_device(device)
    with enough_memory(home, "models", 1):
        model.to(home)
    try:
        yield
    finally:
        model.to(before)


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter of a model is; the CPU if it has none."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def without_special(batch: Any) -> tuple[Any, np.ndarray | None]:
    """The arguments of the model, and the mask of special tokens if there is one."""
    if not isinstance(batch, Mapping):
        return batch, None
    batch = dict(batch)
    special = batch.pop("special_tokens_mask", None)
    return batch, None if special is None else np.asarray(torch.as_tensor(special).cpu()).astype(bool)


def token_ids(model: nn.Module, batch: Any) -> Int[np.ndarray, "n T"] | None:
    """The entry ``input_ids`` of a batch; None if there is none, or a decoder reads others of the same shape.

    The tokens in whose places pictures stand have the same number there; here they have numbers of their own, below 0.
    """
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        return None
    if has_decoder(model):
        decoded = batch.get("decoder_input_ids")
        if not isinstance(decoded, Tensor):  # the model makes them, from the input moved by one place
            return None
        if decoded.shape == tokens.shape and not torch.equal(decoded.cpu(), tokens.cpu()):
            return None
    ids: np.ndarray = tokens.cpu().numpy()
    of_pictures = ids == getattr(getattr(model, "config", None), "image_token_id", None)
    return np.where(of_pictures, -1 - np.arange(ids.shape[1]), ids)


def on_device_of(model: nn.Module, batch: Any) -> Any:
    """The tensors of a batch on the device of the model."""
    device = device_of(model)
    if isinstance(batch, Mapping):
        return {name: on_device_of(model, entry) for name, entry in batch.items()}
    if isinstance(batch, tuple | list):
        return [on_device_of(model, entry) for entry in batch]
    return batch.to(device) if isinstance(batch, Tensor) else batch


def _first_tensor(batch: Any) -> Tensor | None:
    """The first tensor of a mapping; else the first argument, if it is a tensor."""
    if isinstance(batch, Mapping):
        return next((value for value in batch.values() if isinstance(value, Tensor)), None)
    first = batch[0] if isinstance(batch, tuple | list) and len(batch) else batch
    return first if isinstance(first, Tensor) else None
