"""Pictures as the input of a model, by the image processor saved with it, and the names of their patches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm._utils.files import reading, regular_file
from attsvm.errors import ProblemError
from attsvm.pretrained.loading import load_pretrained, quiet_transformers

if TYPE_CHECKING:
    from torch import Tensor

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}

BEFORE = {
    "cls_token": "[CLS]",
    "class_token": "[CLS]",
    "class_embedding": "[CLS]",
    "distillation_token": "[DIST]",
    "register_tokens": "[REG {}]",
}
"""Names of the parameters that models put before the patches, in this order, and of their tokens."""

BEHIND = {"detection_tokens": "[DET {}]"}
"""The same for those behind the patches."""


def read_pixels(name: str, folder: str | Path) -> "Tensor":
    """The pictures of a folder as the image processor of a model makes them.

    Raises ProblemError if there are no pictures, or no image processor.
    """
    pictures = open_pictures(folder)
    processor = load_pretrained("AutoImageProcessor", name, "the image processor")
    with quiet_transformers(), reading(name, "the image processor cannot be used"):
        values: Tensor = processor(images=pictures, return_tensors="pt")["pixel_values"]
    return values


def open_pictures(folder: str | Path) -> list[Any]:
    """The pictures of a folder in the order of their names.

    Raises ProblemError if there are none, or one cannot be read.
    """
    from PIL import Image

    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in PICTURES)
    if not paths:
        raise ProblemError(f"{folder}: no pictures ({', '.join(sorted(PICTURES))})")
    pictures = []
    for path in paths:
        with reading(path, "not a readable picture"):
            pictures.append(Image.open(regular_file(path)).convert("RGB"))
    return pictures


def patch_names(name: str, model: Any, values: "Tensor") -> list[str]:
    """The names of the tokens of a picture: row and column of each patch, where the model has it at this place.

    It is checked with the first picture, whose first and last patch are changed. Where the names do not fit the tokens
    are numbered.

    Raises ProblemError if the model is not one of pictures in patches, draws its tokens at random, or joins several
    pictures in one sequence.
    """
    size = getattr(model.config, "patch_size", None)
    patch = (size, size) if isinstance(size, int) else size
    if not (isinstance(patch, tuple | list) and len(patch) == 2):
        raise ProblemError(f"{name}: expected a model of pictures in patches, got {type(model).__name__}")
    first, rows, columns = values[:1], values.shape[-2] // patch[0], values.shape[-1] // patch[1]
    before, behind = (_added(model, table) for table in (BEFORE, BEHIND))
    names = [*before, *(f"{row},{column}" for row in range(rows) for column in range(columns)), *behind]
    tokens = _embedded(name, model, first)
    if not (tokens == _embedded(name, model, first)).all():
        raise ProblemError(
            f"{name}: expected a model with the same tokens in every pass, but {type(model).__name__} draws them"
        )
    sequences = len(_embedded(name, model, values[:2]))
    if sequences != len(values[:2]):
        raise ProblemError(
            f"{name}: expected a sequence for each picture, got {sequences} for 2 from {type(model).__name__}; inspect"
            " one picture at a time"
        )
    for row, column in ((0, 0), (rows - 1, columns - 1)):
        changed = first.clone()
        changed[..., row * patch[0] : (row + 1) * patch[0], column * patch[1] : (column + 1) * patch[1]] += 1
        differs = (_embedded(name, model, changed) != tokens).any(dim=-1)[0].nonzero().flatten().tolist()
        if tokens.shape[1] != len(names) or differs != [names.index(f"{row},{column}")]:
            return [f"#{k}" for k in range(tokens.shape[1])]
    return names


def _added(model: Any, table: dict[str, str]) -> list[str]:
    """Names of the tokens that a model has as parameters."""
    found, names = dict(model.named_parameters()), []
    for leaf, name in table.items():
        weight = next((one for parameter, one in found.items() if parameter.split(".")[-1] == leaf), None)
        count = 0 if weight is None else weight.numel() // weight.shape[-1]
        names += [name.format(k) for k in range(count)]
    return names


def _embedded(name: str, model: Any, values: "Tensor") -> "Tensor":
    """The tokens (b, T, d) before the first layer."""
    import torch

    with torch.no_grad(), quiet_transformers(), reading(name, "the model does not accept the pictures"):
        output = model(pixel_values=values.to(model.device), output_hidden_states=True)
        tokens: Tensor = (output.hidden_states or [output.last_hidden_state])[0]
    return tokens
