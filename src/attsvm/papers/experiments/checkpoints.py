"""Checkpoints of a training run: one safetensors file with everything that the next step depends on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attsvm._utils.files import atomic_write, reading, regular_file
from attsvm.errors import ProblemError

MODEL, OPTIMIZER, GENERATOR = "model/", "optimizer/", "generator/"


@dataclass
class Position:
    """How far a run is."""

    epoch: int = 0  # epoch, batch: the next batch to train on
    batch: int = 0
    step: int = 0  # updates made
    # loss, correct, seen: sum of the losses, number of right answers and number of rows so far in this epoch
    loss: float = 0.0
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0  # time so far, evaluations included


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    history: list[dict[str, Any]],
    records: list[tuple[int, Any]],
    identity: Mapping[str, Any],
) -> None:
    """Write weights, optimizer state, PyTorch's generators, position, history and records to one file, atomically.

    ``identity``: JSON-able values that must be equal for a run to resume from this checkpoint.
    """
    from safetensors.torch import save

    tensors = {MODEL + name: value for name, value in model.state_dict().items()}
    scalars: dict[str, Any] = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            key = f"{index}/{name}"
            if isinstance(value, Tensor):
                tensors[OPTIMIZER + key] = value
            else:
                scalars[key] = value
    tensors |= {GENERATOR + name: value for name, value in _generators().items()}
    meta = {
        "position": vars(position),
        "history": history,
        "records": records,
        "identity": identity,
        "optimizer": scalars,
    }
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(meta)
    with atomic_write(path) as stream:
        stream.write(save(contiguous, {"attsvm": text, "sha256": _digest(text, contiguous)}))


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]
) -> tuple[Position, list[dict[str, Any]], list[tuple[int, Any]]]:
    """Restore model, optimizer and random generators from a checkpoint.

    Returns ``position``, ``history`` and ``records`` (None in checkpoints of earlier versions).

    Raises ProblemError if the file is not a checkpoint, or belongs to another run.
    """
    with reading(path, "not a checkpoint of attsvm"):
        meta, tensors = _read(path)
        _check_identity(path, meta["identity"], json.loads(json.dumps(identity)))
        position = Position(**meta["position"])
        try:
            model.load_state_dict(_under(MODEL, tensors))
        except RuntimeError as error:
            raise ProblemError(f"{path}: expected weights of this model, got those of another one") from error
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**_under(OPTIMIZER, tensors), **meta["optimizer"]}.items():
            index, name = key.split("/", 1)
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        _restore_generators(_under(GENERATOR, tensors))
        return position, meta["history"], [(step, found) for step, found in meta.get("records", [])]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(regular_file(path), framework="pt") as archive:
        about = archive.metadata() or {}
        tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
    if "attsvm" not in about or about.get("sha256") != _digest(about["attsvm"], tensors):
        raise ValueError("its content does not have its SHA-256")
    return json.loads(about["attsvm"]), tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the content: the format itself does not notice damaged weights."""
    found = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _check_identity(path: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name in sorted(set(found) | set(expected)):
        if found.get(name) != expected.get(name):
            raise ProblemError(
                f"{path}: expected a run with {name} {expected.get(name)!r}, got one with {found.get(name)!r}; "
                "a run is resumed with the same settings"
            )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _generators() -> dict[str, Tensor]:
    """The states of PyTorch's generators. No other one is drawn from."""
    found = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def _restore_generators(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["torch"])
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])
