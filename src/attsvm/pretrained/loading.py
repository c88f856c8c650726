"""Models of the ``transformers`` package, loaded without its messages and without running code of the model."""

import contextlib
import json
import logging
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from attsvm._utils.extras import check_installed
from attsvm._utils.files import reading, regular_file
from attsvm._utils.silence import silent
from attsvm.errors import ProblemError

LAYERS = 1_000
"""A configuration with more layers is damaged. Transformers would create all of them before it reads the weights."""

SECONDS_FOR_HUB = 2.0
"""How long the hub may take to answer."""

INSTEAD = {
    "trust_remote_code": "needs its own code (auto_map), which attsvm does not run",
    "UnpicklingError": "cannot be loaded (its weights are not plain tensors; pickled objects are never loaded)",
    "ignore_mismatched_sizes": "cannot be loaded (its weights do not have the sizes of its configuration)",
}
"""What to say in place of messages whose advice is unsafe or does not apply."""


def check_models(names: Iterable[str], *, pictures: bool) -> None:
    """Check, before anything large is imported, that models can be there and take pictures if they are given.

    Raises
    ------
    ProblemError
        If transformers is not installed, the hub is needed and does not answer, or a saved model has no image processor
        for pictures.
    """
    check_installed("a pretrained model", "inspect", "torch", "transformers")
    for name in names:
        folder = Path(name)
        if pictures and (folder / "config.json").is_file() and not any(folder.glob("*processor_config.json")):
            raise ProblemError(f"{name}: expected a model for pictures, but it has no image processor; use --text FILE")
        if not folder.exists() and not name.startswith((".", "/", "~")) and name.count("/") <= 1:
            _check_hub(name)


def _check_hub(name: str) -> None:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or (Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir():
        return
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=SECONDS_FOR_HUB))
        except HTTPError as error:  # an answer, too
            answers.append(error)
        except OSError:
            return

    thread = Thread(target=ask, daemon=True)  # a name server may take much longer than the limit
    thread.start()
    thread.join(SECONDS_FOR_HUB)
    if not answers:
        raise ProblemError(
            f"{name}: no such folder, and {constants.ENDPOINT} does not answer; give a folder with a model"
        )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The package, with its messages, warnings and progress bars switched off.

    Raises
    ------
    ProblemError
        If it is not installed.
    """
    check_installed("a pretrained model", "inspect", "torch", "transformers")
    import transformers
    from transformers.utils import logging as messages

    settings: Any = messages  # untyped
    verbosity = settings.get_verbosity()
    settings.set_verbosity(logging.CRITICAL)
    settings.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        settings.set_verbosity(verbosity)
        settings.enable_progress_bar()


def load_pretrained(kind: str, name: str | os.PathLike[str], what: str, **options: Any) -> Any:
    """What a class of the package loads. Code that comes with a model is never run.

    Parameters
    ----------
    kind : str
        Name of a class of the package, such as ``AutoModel``.
    name : str or path
        A folder, or a name on the Hugging Face hub.
    what : str
        What is loaded, for error messages.
    **options
        Further arguments of ``from_pretrained``.

    Raises
    ------
    ProblemError
        If it cannot be loaded, or needs code of its own.
    """
    for entry in Path(name).iterdir() if Path(name).is_dir() else ():
        if entry.exists() and not entry.is_dir():
            regular_file(entry)
    with quiet_transformers() as transformers, reading(name, f"{what} cannot be loaded"), silent():
        try:
            return getattr(transformers, kind).from_pretrained(name, trust_remote_code=False, **options)
        except (RuntimeError, ValueError, pickle.UnpicklingError) as error:
            known = next(
                (said for advice, said in INSTEAD.items() if advice in f"{type(error).__name__}: {error}"), None
            )
            if known is None:
                raise
            raise ProblemError(f"{name}: {what} {known}") from None


def base_of_adapter(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The model that an adapter of PEFT in this folder changes; the name itself if there is none.

    Raises
    ------
    ProblemError
        If PEFT is not installed, or the adapter does not name its model.
    """
    config = Path(name) / "adapter_config.json"
    if not config.is_file() or (Path(name) / "config.json").exists():
        return name
    if find_spec("peft") is None:
        raise ProblemError(f"{name}: expected a model, got an adapter, which needs peft: pip install peft")
    with reading(name, "the adapter cannot be loaded"):
        base = json.loads(regular_file(config).read_text("utf-8")).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise ProblemError(f"{name}: expected an adapter that names its base_model_name_or_path, got {base!r}")
    return base


def text_config(config: Any) -> Any:
    """The part of a configuration that is about text; the whole one of models with several texts."""
    try:
        return config.get_text_config()
    except ValueError:
        return config


def load_pretrained_model(name: str | os.PathLike[str], **options: Any) -> Any:
    """A model in evaluation mode, with the weights that are saved and none that are drawn at random.

    Raises
    ------
    ProblemError
        If it cannot be loaded, or a weight is missing or not finite. Only the pooling layer may be missing, whose
        output is not used, and tables of sines, which the model makes itself.
    """
    config = load_pretrained("AutoConfig", base_of_adapter(name), "the model", **options)
    layers = getattr(text_config(config), "num_hidden_layers", None)
    if isinstance(layers, int) and layers > LAYERS:
        raise ProblemError(f"{name}: the model cannot be loaded (expected at most {LAYERS:,} layers, got {layers:,})")
    model, found = load_pretrained("AutoModel", name, "the model", output_loading_info=True, **options)
    missing = sorted(key for key in found["missing_keys"] if "pooler" not in key)
    missing = [key for key in missing if not hasattr(model.get_submodule(key.rpartition(".")[0]), "create_weight")]
    if missing:
        said = f"{len(missing)} weight{'s are' if len(missing) > 1 else ' is'} missing: {missing[0]}"
        raise ProblemError(f"{name}: the model cannot be loaded ({said})")
    for key, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise ProblemError(f"{name}: the model cannot be loaded (its weight {key} holds NaN or infinity)")
    return model.eval()
