"""Short labelled sentences with known words that carry the sentiment, and how much attention these words receive."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from attsvm.apps.experiments.models import TextClassifier
from attsvm.apps.experiments.reviews import encoded

_MARKED = (
    (1, "The acting was *wonderful* from the first scene to the last."),
    (1, "I *loved* every minute of this film."),
    (1, "A *brilliant* script and a *superb* cast."),
    (1, "This is an *excellent* movie for the whole family."),
    (1, "The music is *beautiful* and the story is *touching*."),
    (1, "My brother and I thought the ending was *perfect*."),
    (1, "One of the *best* films that I have seen this year."),
    (1, "The director made an *amazing* picture out of a small book."),
    (1, "It is *funny* and *charming* without trying too hard."),
    (1, "We went on a Sunday and had a *great* time."),
    (0, "The acting was *terrible* from the first scene to the last."),
    (0, "I *hated* every minute of this film."),
    (0, "A *stupid* script and an *awful* cast."),
    (0, "This is the *worst* movie of the whole series."),
    (0, "The music is *annoying* and the story is *dull*."),
    (0, "My brother and I thought the ending was *ridiculous*."),
    (0, "It was two hours long and it was a *waste* of time."),
    (0, "The director made a *boring* picture out of a good book."),
    (0, "It is *lame* and *predictable* from the start."),
    (0, "We went on a Sunday and it was a *horrible* evening."),
)


@dataclass(frozen=True)
class Sentence:
    """A sentence, its label (1 positive, 0 negative) and the positions (begin, end) of its key words."""

    text: str
    label: int
    keys: tuple[tuple[int, int], ...]


def _unmarked(label: int, marked: str) -> Sentence:
    pieces = marked.split("*")
    keys, at = [], 0
    for number, piece in enumerate(pieces):
        if number % 2:
            keys.append((at, at + len(piece)))
        at += len(piece)
    return Sentence("".join(pieces), label, tuple(keys))


SENTENCES = tuple(_unmarked(label, marked) for label, marked in _MARKED)


class KeyWords(NamedTuple):
    """How much attention a model pays to the key words of the sentences.

    Attributes
    ----------
    score : float
        Key-word score: the share of attention that the [CLS] query of the last layer pays to the key words, averaged
        over heads and sentences.
    even : float
        The score of equal attention to all tokens, [CLS] and [SEP] included.
    sentences : list of dict
        For every sentence: text, label, probability of class 1, pieces ((begin, end, attention, is key) of each token
        with a position in the text), and the attention to special tokens.
    """

    score: float
    even: float
    sentences: list[dict[str, Any]]


def read_sentences(model: TextClassifier, tokenizer: Any, length: int, device: str = "cpu") -> KeyWords:
    """Measure the attention of a model on the sentences.

    Parameters
    ----------
    model : TextClassifier
    tokenizer : Tokenizer
        From :func:`attsvm.apps.experiments.reviews.load_tokenizer`.
    length : int
        Largest number of tokens that the model takes.
    device : str
    """
    numbers = encoded([sentence.text for sentence in SENTENCES], tokenizer, length)
    inputs = numbers[:, : int((numbers != 0).sum(-1).max())].to(device)
    last = model.attention_maps(inputs)[-1][:, :, 0].mean(1).cpu()
    training = model.training
    with torch.no_grad():
        probabilities = model.eval()(inputs).float().sigmoid().cpu()
    model.train(training)
    readings, scores, shares = [], [], []
    for row, sentence in enumerate(SENTENCES):
        found = tokenizer.encode(sentence.text)
        pieces, special, key_tokens, read = [], 0.0, 0, min(len(found.ids), length)
        for place in range(read):
            begin, end = found.offsets[place]
            weight = float(last[row, place])
            if begin == end:
                special += weight
                continue
            key = any(first <= begin and end <= past for first, past in sentence.keys)
            key_tokens += key
            pieces.append((begin, end, weight, key))
        scores.append(sum(weight for _, _, weight, key in pieces if key))
        shares.append(key_tokens / read)
        readings.append(
            {
                "text": sentence.text,
                "label": sentence.label,
                "probability": float(probabilities[row]),
                "special": special,
                "pieces": pieces,
            }
        )
    return KeyWords(sum(scores) / len(scores), sum(shares) / len(shares), readings)
