"""Models of the ``transformers`` package: saved ones, checkpoints, and models before training."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm._utils.files import reading
from attsvm.errors import ProblemError
from attsvm.pretrained.loading import load_pretrained_model, quiet_transformers

if TYPE_CHECKING:
    from torch import nn


def load_model(name: str, *, pictures: bool | None = None) -> "nn.Module":
    """A model in float32, from a folder or by its name on the Hugging Face hub.

    ``pictures``: which part of a model for texts and pictures is meant, see :func:`tower`; None for the whole model,
    which sees both.

    Raises ProblemError if there is no such model, or it cannot be loaded.
    """
    with quiet_transformers():
        _check_folder(name)
    model: nn.Module = load_pretrained_model(name, dtype="float32")
    if pictures is not None:
        model = tower(model, pictures=pictures)
    return model


def tower(model: Any, *, pictures: bool) -> Any:
    """The part of a model for texts and pictures, such as CLIP, that sees one of them; any other model as it is.

    A language model that also reads pictures remains whole for texts, which it does not run its tower of pictures on.

    Examples
    --------
    >>> from torch import nn
    >>> from attsvm.pretrained.models import tower
    >>> model = nn.ModuleDict({"text_model": nn.Linear(2, 3), "vision_model": nn.Linear(4, 5)})
    >>> tower(model, pictures=True) is model.vision_model, tower(nn.ReLU(), pictures=True)
    (True, ReLU())
    """
    text, vision = (getattr(model, name, None) for name in ("text_model", "vision_model"))
    if text is not None and vision is not None:
        return vision if pictures else text
    return getattr(model, "vision_tower", model) if pictures else model


def random_twin(model: Any, seed: int) -> "nn.Module":
    """A model of the same configuration with random initial weights."""
    import torch

    with quiet_transformers() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with reading(type(model).__name__, "no randomly initialised twin can be made"):
            twin: nn.Module = transformers.AutoModel.from_config(model.config, trust_remote_code=False).float().eval()
    return twin


def checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """The models in subfolders whose names end with a training step, such as checkpoint-500, ordered by that step.

    Raises ProblemError if there are none, or it is no folder.
    """
    if not Path(folder).is_dir():
        raise ProblemError(f"{folder}: no such folder")
    found = []
    for path in Path(folder).iterdir():
        match = re.search(r"(\d+)$", path.name)
        if match and (path / "config.json").is_file():
            found.append((int(match[1]), path))
    if not found:
        raise ProblemError(f"{folder}: expected folders of models whose names end with a training step")
    return sorted(found)


def _check_folder(name: str) -> None:
    path = Path(name)
    saved = any((path / config).is_file() for config in ("config.json", "adapter_config.json"))
    if path.is_dir() and not saved:
        raise ProblemError(f"{name}: expected a folder with a Hugging Face model, got one without config.json")
    if path.is_file():
        raise ProblemError(f"{name}: expected a folder with a Hugging Face model, or its name, got a file")
    if not path.exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ProblemError(f"{name}: no such folder")
