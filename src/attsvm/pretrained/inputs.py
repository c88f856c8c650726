"""Texts and pictures as the input of a model, by the tokenizer or image processor saved with the model."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attsvm._utils.files import read_text, reading
from attsvm.errors import ProblemError
from attsvm.pretrained.loading import base_of_adapter, load_pretrained, quiet_transformers, text_config
from attsvm.pretrained.pictures import open_pictures, patch_names, read_pixels
from attsvm.pretrained.sounds import read_sounds
from attsvm.pretrained.token_names import special_numbers, token_names

if TYPE_CHECKING:
    import torch

TOKENIZER_FILES = ("tokenizer", "vocab", "spiece", "sentencepiece")
"""How the names of tokenizer files begin. Without such a file transformers would create an empty tokenizer."""

LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""What configurations call the largest number of tokens that a model takes."""

UNLIMITED = 100_000
"""A tokenizer with a larger maximum length has no limit."""


class Input(NamedTuple):
    """The arguments of a model, and the names of its tokens."""

    # models take all entries but special_tokens_mask, the name that tokenizers use
    batch: "dict[str, torch.Tensor]"
    tokens: list[list[str]]  # for each sequence, padding included
    # from numbers of tokens of the vocabulary to their names; None without a vocabulary
    words: Callable[[list[int]], list[str]] | None = None
    # of the decoder, for each sequence; None if it reads the same text. There is one place of padding more if it would
    # have as many as the encoder, so that lengths tell both apart
    decoder: list[list[str]] | None = None

    @classmethod
    def of_pictures(cls, name: str, model: Any, values: "torch.Tensor") -> "Input":
        """Pixels (n, C, H, W) as the input of a model; raises ProblemError if its tokens cannot be named."""
        return cls({"pixel_values": values}, [patch_names(name, model, values)] * len(values))


def read_texts(path: str | Path) -> list[str]:
    """The lines of a text file that are not empty.

    Raises ProblemError if there are none, or the file is not UTF-8 text.
    """
    texts = [line.strip() for line in read_text(path).split("\n") if line.strip()]
    if not texts:
        raise ProblemError(f"{path}: expected one sequence per line, got an empty file")
    return texts


def has_tokenizer(name: str) -> bool:
    """Whether a tokenizer is saved in a folder with a model. A name on the hub is taken to have one."""
    folder = Path(name)
    return not folder.is_dir() or any(path.name.startswith(TOKENIZER_FILES) for path in folder.iterdir())


def has_decoder(model: Any) -> bool:
    """Whether a model has an encoder and a decoder, with an input of its own for each."""
    return "decoder_input_ids" in inspect.signature(model.forward).parameters


def read_input(
    name: str,
    model: Any,
    texts: list[str],
    images: Path | None,
    *,
    sounds: Path | None = None,
    targets: list[str] | None = None,
    **options: Any,
) -> Input:
    """The pictures or sounds of a folder, some texts, or texts with their pictures, as the input of a model.

    ``name``: of the model. ``targets``: texts of the decoder, one for each sequence. ``options``: of :func:`tokenized`.

    Raises ProblemError if there are other numbers of targets, or the model has no decoder for them.
    """
    if sounds is not None:
        given = Input(*read_sounds(name, sounds, model))
        return decoded(name, given, model, targets) if targets or has_decoder(model) else given
    if images is None:
        given = tokenized(name, texts, model, **options)
        return decoded(name, given, model, targets) if targets else given
    return with_pictures(name, texts, images, model, **options) if texts else read_pictures(name, images, model)


def tokenized(
    name: str, texts: list[str], model: Any, *, special_tokens: bool = True, chat: bool = False, pairs: bool = False
) -> Input:
    """Texts as the input of a model, by the tokenizer saved with it.

    ``name``: folder of the model, or its name on the Hugging Face hub. ``special_tokens``: whether the tokenizer adds
    its special tokens. ``chat``: each text is what a user says, in the chat template of the tokenizer. ``pairs``: each
    text is two sentences with a tab between them.

    Raises ProblemError if there is no tokenizer, it does not fit the model, or a text is longer than the model takes.
    """
    name = name if has_tokenizer(name) else str(base_of_adapter(name))
    if not has_tokenizer(name):
        raise ProblemError(
            f"{name}: no tokenizer is saved with the model ({'*, '.join(TOKENIZER_FILES)}*); save it there with "
            "tokenizer.save_pretrained, or pass it to the Trainer as processing_class"
        )
    if getattr(model, "main_input_name", "input_ids") != "input_ids":
        raise ProblemError(f"{name}: expected a model of texts, got {type(model).__name__} of {model.main_input_name}")
    tokenizer = load_pretrained("AutoTokenizer", name, "the tokenizer")
    with quiet_transformers(), reading(name, "the tokenizer cannot be used"):
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None and len(texts) > 1:
            raise ProblemError(f"{name}: expected a single text, because the tokenizer has no padding token")
        encoded = tokenizer(
            *_parts(name, tokenizer, texts, chat, pairs),
            add_special_tokens=special_tokens and not chat,  # a template has its own
            padding=len(texts) > 1,
            padding_side="right",
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        _check_tokens(name, encoded, model, tokenizer)
        names = [token_names(tokenizer, row) for row in encoded["input_ids"].tolist()]
        marks = encoded["input_ids"].clone().apply_(special_numbers(tokenizer).__contains__)
    batch = {key: encoded[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in encoded}
    if has_decoder(model):  # it reads the same text
        batch |= {f"decoder_{key}": batch[key] for key in ("input_ids", "attention_mask") if key in batch}
    special = (encoded["special_tokens_mask"] | marks) * encoded["attention_mask"]
    if special.any():
        batch["special_tokens_mask"] = special
    return Input(batch, names, lambda numbers: [token_names(tokenizer, [one])[0] for one in numbers])


def decoded(name: str, given: Input, model: Any, targets: list[str] | None) -> Input:
    """An input whose decoder reads texts of its own, moved by one place as in the training of the model.

    ``targets``: None for the tokens with which a generation begins.

    Raises ProblemError if there are other numbers of them, or the model has no decoder.
    """
    import torch

    if not has_decoder(model):
        raise ProblemError(f"--target: expected a model with an encoder and a decoder, got {type(model).__name__}")
    n, start = len(given.tokens), getattr(model.config, "decoder_start_token_id", None)
    if targets is not None and len(targets) != n:
        raise ProblemError(f"--target: expected {n} lines, one for each sequence, got {len(targets)}")
    tokenizer = load_pretrained("AutoTokenizer", name, "the tokenizer")
    with quiet_transformers(), reading(name, "the tokenizer cannot be used"):
        if targets is None:
            if start is None:
                raise ProblemError(_no_start(name))
            forced: list[Any] = []
            if (Path(name) / "generation_config.json").is_file() or not Path(name).is_dir():
                settings = load_pretrained("GenerationConfig", name, "the generation settings")
                forced = getattr(settings, "forced_decoder_ids", None) or []
            forced = [token for _, token in sorted(forced) if token is not None]
            ids = torch.tensor([[start, *forced]] * n)
            mask = torch.ones_like(ids)
        else:
            encoded = tokenizer(text_target=targets, padding=n > 1, padding_side="right", return_tensors="pt")
            labels, mask = encoded["input_ids"], encoded["attention_mask"]
            _check_tokens(name, encoded, model, tokenizer)
            if start is not None and bool((labels[:, 0] == start).all()):  # as that of Whisper, which is put in front
                labels, mask = labels[:, 1:], mask[:, 1:]
            try:
                ids = _shifted(model, labels)
            except (AttributeError, TypeError, ValueError) as error:
                if start is None:  # the first token of some decoders is found in another way
                    raise ProblemError(_no_start(name)) from error
                raise
        if ids.shape[1] == len(given.tokens[0]):  # one more place of padding
            ids, mask = torch.cat([ids, ids[:, -1:]], dim=1), torch.cat([mask, 0 * mask[:, -1:]], dim=1)
        names = [token_names(tokenizer, row) for row in ids.tolist()]
    batch = given.batch | {"decoder_input_ids": ids, "decoder_attention_mask": mask}
    return given._replace(batch=batch, decoder=names)


def _no_start(name: str) -> str:
    return (
        f"{name}: expected decoder_start_token_id in the configuration, the token before the first of the decoder, got "
        "none; for T5 it is that of padding"
    )


def _shifted(model: Any, labels: "torch.Tensor") -> "torch.Tensor":
    """What the decoder of a model reads to predict some labels."""
    for method in ("prepare_decoder_input_ids_from_labels", "_shift_right"):
        if hasattr(model, method):
            shifted: torch.Tensor = getattr(model, method)(labels)
            return shifted
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        raise ProblemError(
            f"--target: expected a model that defines how its decoder reads a text, got {type(model).__name__}"
        )
    given = (labels, model.config.pad_token_id, getattr(model.config, "decoder_start_token_id", None))
    moved: torch.Tensor = shift(*given[: len(inspect.signature(shift).parameters)])
    return moved


def with_pictures(
    name: str, texts: list[str], folder: Path, model: Any, *, special_tokens: bool = True, chat: bool = False
) -> Input:
    """Texts with their pictures as the input of a model, by the processor saved with it.

    Each text has equally many pictures of the folder, in the order of their names. They stand where the text or the
    chat template has the token of a picture, or in front of the text. ``special_tokens``, ``chat``: as of
    :func:`tokenized`.

    Raises ProblemError if the pictures cannot be distributed, or there is no processor or it does not fit the model.
    """
    pictures = open_pictures(folder)
    count, rest = divmod(len(pictures), len(texts))
    if rest or not count:
        raise ProblemError(
            f"{folder}: expected equally many pictures for each of {len(texts)} texts, got {len(pictures)} pictures"
        )
    processor = load_pretrained("AutoProcessor", name, "the processor")
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise ProblemError(f"{name}: expected a processor of texts and pictures, got {type(processor).__name__}")
    mark = getattr(processor, "image_token", None) if hasattr(model.config, "image_token_id") else None
    with quiet_transformers(), reading(name, "the processor cannot be used"):
        if chat:
            parts = [[*([{"type": "image"}] * count), {"type": "text", "text": text}] for text in texts]
            said = [[{"role": "user", "content": one}] for one in parts]
            texts = [processor.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in said]
        elif isinstance(mark, str):
            texts = [text if mark in text else count * mark + text for text in texts]
        encoded = processor(
            text=texts,
            images=[pictures[k : k + count] for k in range(0, len(pictures), count)],
            add_special_tokens=special_tokens and not chat,
            padding=len(texts) > 1,
            padding_side="right",
            return_tensors="pt",
        )
        numbers = encoded["input_ids"].tolist()
        of_pictures = getattr(model.config, "image_token_id", None)
        names = [
            [
                f"{one} {k}" if at == of_pictures else one
                for k, (one, at) in enumerate(zip(token_names(tokenizer, row), row, strict=True))
            ]
            for row in numbers
        ]
        marks = special_numbers(tokenizer) - {of_pictures}  # these are what is seen, and mark nothing
        special = encoded["input_ids"].clone().apply_(marks.__contains__)
    _check_tokens(name, encoded, model, tokenizer)
    batch = {key: value for key, value in encoded.items() if hasattr(value, "shape")}
    special = special * batch.get("attention_mask", 1)
    if special.any():
        batch["special_tokens_mask"] = special
    return Input(batch, names)


def _parts(name: str, tokenizer: Any, texts: list[str], chat: bool, pairs: bool) -> list[list[str]]:
    """Texts as the tokenizer takes them: in its chat template, or the first and the second ones of pairs."""
    if chat:
        if tokenizer.chat_template is None:
            raise ProblemError(f"--chat: the tokenizer of {name} has no chat template")
        said = [[{"role": "user", "content": text}] for text in texts]
        return [[tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in said]]
    if not pairs:
        return [texts]
    for number, text in enumerate(texts):
        if text.count("\t") != 1:
            raise ProblemError(
                f"--pairs: expected two sentences with one tab between them, got {text.count(chr(9))} in text "
                f"{number}, counted from 0"
            )
    first, second = zip(*(text.split("\t") for text in texts), strict=True)
    return [list(first), list(second)]


def read_pictures(name: str, folder: str | Path, model: Any) -> Input:
    """The pictures of a folder as the input of a model, by the image processor saved with it.

    Raises ProblemError if there are none, or the model is not one of pictures whose tokens can be named.
    """
    return Input.of_pictures(name, model, read_pixels(name, folder))


def _check_tokens(name: str, encoded: Any, model: Any, tokenizer: Any) -> None:
    """Check that a model takes some encoded texts."""
    lengths = encoded["attention_mask"].sum(-1).tolist()
    vocabulary = text_config(model.config).vocab_size
    if not lengths or min(lengths) == 0:
        raise ProblemError(f"text {lengths.index(0)}, counted from 0: the tokenizer of {name} finds no tokens in it")
    largest = int(encoded["input_ids"].max())
    if largest >= vocabulary:
        raise ProblemError(f"{name}: expected tokens below {vocabulary}, got token {largest} from the tokenizer")
    most, longest = max(range(len(lengths)), key=lengths.__getitem__), _longest(model, tokenizer)
    if longest is not None and lengths[most] > longest:
        raise ProblemError(
            f"text {most}, counted from 0: expected at most {longest} tokens for {name}, got {lengths[most]}"
        )


def _longest(model: Any, tokenizer: Any) -> int | None:
    """The largest number of tokens that both the tokenizer and the model take."""
    if tokenizer.model_max_length < 1:
        raise ValueError(f"model_max_length: expected an integer >= 1, got {tokenizer.model_max_length}")
    config = text_config(model.config)
    limits = [getattr(config, name, None) for name in LENGTHS]
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            limits.append(table.num_embeddings - table.padding_idx - 1)  # RoBERTa counts from behind the padding
    limits.append(tokenizer.model_max_length if tokenizer.model_max_length < UNLIMITED else None)
    return min((limit for limit in limits if limit is not None), default=None)
