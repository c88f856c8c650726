"""Short labelled sentences with known words that carry the sentiment, and how much attention these words receive.

The mirror-descent paper reads 50 sentences in this way. The 50 here were written for this package.
"""

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm.papers.experiments.models import ReviewClassifier
from attsvm.papers.experiments.reviews import encoded


@dataclass(frozen=True)
class Sentence:
    """A sentence, its label (1 positive, 0 negative) and the positions (begin, end) of its key words."""

    text: str
    label: int
    keys: tuple[tuple[int, int], ...]


def _read(line: str) -> Sentence:
    """Read a line of ``sentences.txt``, which has the key words between asterisks."""
    label, _, marked = line.partition(": ")
    pieces = marked.split("*")
    ends = list(accumulate(map(len, pieces)))
    return Sentence("".join(pieces), int(label == "positive"), tuple(zip(ends[::2], ends[1::2], strict=False)))


SENTENCES = tuple(map(_read, Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()))


class KeyWords(NamedTuple):
    """How much attention a model pays to the key words of the sentences."""

    # key-word score: the share of attention that the [CLS] query of the last layer pays to the key words, averaged over
    # heads and sentences
    score: float
    even: float  # the score of equal attention to all tokens, [CLS] and [SEP] included
    # scaled, scaled_others: attention on the scale from 0 to 1 of each sentence, see :func:`scaled`: the mean over key
    # words, and over the other words, averaged over sentences
    scaled: float
    scaled_others: float
    # for every sentence: text, label, probability of class 1, pieces ((begin, end, attention, is key) of each token
    # with a position in the text), scaled (the attention of each piece on the scale from 0 to 1), key_scaled and
    # others_scaled (their means over key words and over other words), and the attention to special tokens
    sentences: list[dict[str, Any]]


def scaled(row: Tensor) -> Tensor:
    """A row of attention on the scale from 0, its smallest entry, to 1, its largest. A row of equal entries gives 0.

    Examples
    --------
    >>> import torch
    >>> from attsvm.papers.experiments.sentences import scaled
    >>> scaled(torch.tensor([0.25, 0.5, 0.25, 0.0]))
    tensor([0.5000, 1.0000, 0.5000, 0.0000])
    """
    range_ = row.max() - row.min()
    return (row - row.min()) / torch.where(range_ > 0, range_, 1.0)


def read_sentences(model: ReviewClassifier, tokenizer: Any, length: int, device: str = "cpu") -> KeyWords:
    """Measure the attention of a model on the sentences.

    ``tokenizer``: from :func:`attsvm.papers.experiments.reviews.load_tokenizer`. ``length``: largest number of tokens
    that the model takes.
    """
    numbers = encoded([sentence.text for sentence in SENTENCES], tokenizer, length)
    inputs = numbers[:, : int((numbers != 0).sum(-1).max())].to(device)
    last = model.attention_maps(inputs)[-1][:, :, 0].mean(1).cpu()
    training = model.training
    with torch.no_grad():
        probabilities = model.eval()(inputs).float().sigmoid().cpu()
    model.train(training)
    readings, shares = [], []
    for sentence, row, probability in zip(SENTENCES, last, probabilities.tolist(), strict=True):
        offsets = tokenizer.encode(sentence.text).offsets[:length]
        reading = _reading(sentence, offsets, row[: len(offsets)])
        readings.append({"text": sentence.text, "label": sentence.label, "probability": probability, **reading})
        shares.append(sum(key for *_, key in reading["pieces"]) / len(offsets))
    scores = [sum(weight for _, _, weight, key in reading["pieces"] if key) for reading in readings]
    of_keys, of_others = (fmean(reading[name] for reading in readings) for name in ("key_scaled", "others_scaled"))
    return KeyWords(fmean(scores), fmean(shares), of_keys, of_others, readings)


def _reading(sentence: Sentence, offsets: list[tuple[int, int]], row: Tensor) -> dict[str, Any]:
    """The attention to the pieces of a sentence, from the row of its tokens and their positions in the text."""
    pieces, on_scale, special = [], [], 0.0
    for (begin, end), weight, share in zip(offsets, row.tolist(), scaled(row).tolist(), strict=True):
        if begin == end:
            special += weight
            continue
        key = any(first <= begin and end <= past for first, past in sentence.keys)
        pieces.append((begin, end, weight, key))
        on_scale.append(share)
    of_keys = [share for share, (*_, key) in zip(on_scale, pieces, strict=True) if key]
    of_others = [share for share, (*_, key) in zip(on_scale, pieces, strict=True) if not key]
    return {
        "pieces": pieces,
        "scaled": on_scale,
        "key_scaled": fmean(of_keys) if of_keys else 0.0,  # a model of short texts may not reach the key word
        "others_scaled": fmean(of_others) if of_others else 0.0,
        "special": special,
    }
