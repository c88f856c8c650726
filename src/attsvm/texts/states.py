"""Texts as sequences of the hidden states of a pretrained transformer."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm._utils.devices import find_torch_device
from attsvm._utils.files import reading
from attsvm._utils.memory import enough_memory
from attsvm._utils.shapes import Int
from attsvm.datasets import Sequences
from attsvm.errors import ProblemError
from attsvm.pretrained import load_pretrained, load_pretrained_model, quiet_transformers
from attsvm.texts.words import MAX_LENGTH

BYTES = 4 << 30
"""Largest size of the states of all texts: every token of every text has its own state."""

TEXTS_AT_ONCE = 32

PROBE = "A short text."
"""The text that a model is tried on after loading."""


@dataclass(frozen=True)
class States:
    """A pretrained transformer whose last hidden states are the tokens."""

    model: Any  # model, tokenizer: a model and a tokenizer of the transformers package
    tokenizer: Any
    max_length: int  # largest number of tokens that are kept of a text, from its beginning

    tokens: ClassVar[str] = "states of a transformer"
    min_documents: ClassVar[None] = None
    split_by: ClassVar[None] = None

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokenizer's words and pieces of words, by index."""
        return tuple(self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer)))))

    def known(self, text: str) -> list[tuple[int, int, int]]:
        """The tokens kept of a text: the index in the vocabulary, and where each begins and ends in the text."""
        found = self._tokenized([text], special=False)
        places = zip(found["input_ids"][0], found["offset_mapping"][0], strict=True)
        return [(number, begin, end) for number, (begin, end) in places]

    def encode(self, texts: Sequence[str]) -> tuple[Sequences, Int[np.ndarray, " N"]]:
        """Encode texts as sequences of states, one per token. Tokens that a tokenizer adds around a text are left out.

        Returns n sequences of at least one and at most ``max_length`` states, and the index of each token in the
        vocabulary.
        A text without tokens has one zero state, whose index is V.

        Raises ProblemError if the states would take more than 4 GiB.
        """
        numbers = self._tokenized(list(texts), special=False)["input_ids"]
        lengths = np.array([max(len(of_text), 1) for of_text in numbers])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        width = int(self.model.config.hidden_size)
        needed = 4 * width * int(offsets[-1])
        if needed > BYTES:
            raise ProblemError(
                f"--embed: expected states of at most {BYTES / 2**30:.0f} GiB, got {offsets[-1]:,} tokens of {width} "
                f"numbers ({needed / 2**30:.1f} GiB); lower --max-length or give fewer texts"
            )
        states = np.zeros((offsets[-1], width), np.float32)
        words = np.full(offsets[-1], len(self.vocabulary), np.int32)
        # texts of similar length share a batch, so that little of it is padding
        order = np.argsort(-lengths, kind="stable")
        for begin in range(0, len(order), TEXTS_AT_ONCE):
            chosen = order[begin : begin + TEXTS_AT_ONCE]
            for row, found in zip(chosen, self._states([texts[row] for row in chosen]), strict=True):
                at = slice(offsets[row], offsets[row] + len(numbers[row]))
                states[at], words[at] = found, numbers[row]
        return Sequences(states, np.arange(len(states)), offsets), words

    def number_cut(self, texts: Sequence[str]) -> int:
        """How many texts have more tokens than are kept."""
        with quiet_transformers():
            return sum(
                len(self.tokenizer(text, add_special_tokens=False)["input_ids"]) > self.max_length for text in texts
            )

    def _states(self, texts: list[str]) -> list[np.ndarray]:
        import torch

        batch = self._tokenized(texts, special=True, padding=True, padding_side="right", return_tensors="pt")
        added = batch.pop("special_tokens_mask").bool() | ~batch["attention_mask"].bool()
        batch.pop("offset_mapping")
        with torch.inference_mode():
            on_device = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
            with enough_memory(self.model.device, "texts of a batch", len(texts)):
                hidden = self.model(**on_device).last_hidden_state.cpu()
        if not hidden[~added].isfinite().all():
            raise ProblemError("--embed: expected finite states, got NaN or infinity from the model")
        return [hidden[i][~added[i]].float().numpy() for i in range(len(texts))]

    def _tokenized(self, texts: list[str], *, special: bool, **options: Any) -> Any:
        around = self.tokenizer.num_special_tokens_to_add() if special else 0
        with quiet_transformers():
            return self.tokenizer(
                texts,
                add_special_tokens=special,
                truncation=True,
                max_length=self.max_length + around,
                return_offsets_mapping=True,
                return_special_tokens_mask=special,
                **options,
            )


def load_states(path: str | os.PathLike[str], max_length: int = MAX_LENGTH, device: str | None = None) -> States:
    """Load a transformer whose states are the tokens.

    ``path``: a folder with a Hugging Face model and its fast tokenizer. ``max_length``: largest number of tokens that
    are kept of a text. It is lowered to what the model accepts. ``device``: where the model runs, as for
    :func:`attsvm.train`; the CPU by default.

    Raises ProblemError if transformers is not installed (extra ``inspect``), or the folder does not contain such a
    model.
    """
    check_integer("max_length", max_length, 1)
    if not (Path(path) / "config.json").is_file():
        raise ProblemError(f"{path}: expected a folder with a Hugging Face model, got no config.json in it")
    model = load_pretrained_model(path, local_files_only=True)
    tokenizer = load_pretrained("AutoTokenizer", path, "the tokenizer", local_files_only=True)
    if not tokenizer.is_fast:
        raise ProblemError(f"{path}: expected a fast tokenizer, which reports the positions of tokens, got a slow one")
    model.to(find_torch_device(device or "cpu"))
    with reading(path, "the model cannot be used"):
        longest = getattr(model.config, "max_position_embeddings", None) or max_length
        around = tokenizer.num_special_tokens_to_add()
        states = States(model, tokenizer, min(max_length, min(longest, tokenizer.model_max_length) - around))
        states.encode([PROBE])
    return states
