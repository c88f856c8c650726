"""Short labelled sentences with known words that carry the sentiment, and how much attention these words receive.

The mirror-descent paper reads 50 sentences in this way. The 50 here were written for this package.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm.papers.experiments.models import TextClassifier
from attsvm.papers.experiments.reviews import encoded

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
    (1, "A *delightful* comedy with a lot of heart."),
    (1, "The two leads are *fantastic* together on the screen."),
    (1, "I was *impressed* by the way the camera follows the boy."),
    (1, "This is a *masterpiece* of early sound cinema."),
    (1, "The costumes are *gorgeous* and so is the light."),
    (1, "It is a *moving* portrait of a father and his son."),
    (1, "You will *enjoy* this film if you like old trains."),
    (1, "My *favorite* part is the scene in the kitchen."),
    (1, "An *outstanding* debut by a young director from Poland."),
    (1, "The dialogue is *clever* and the pace never drops."),
    (1, "What a *hilarious* hour and a half that was."),
    (1, "I *recommend* it to everyone who has a sister."),
    (1, "The last act is *powerful* and it stayed with me for days."),
    (1, "A *refreshing* change from what is shown in the cinemas."),
    (1, "The whole cast is *terrific* in this small drama."),
    (0, "A *pointless* comedy with a lot of shouting."),
    (0, "The two leads are *wooden* together on the screen."),
    (0, "I was *disappointed* by the way the story ends."),
    (0, "This is a *mess* of a film from start to end."),
    (0, "The costumes are *ugly* and so is the light."),
    (0, "It is a *tedious* portrait of a father and his son."),
    (0, "You should *avoid* this film even if you like old trains."),
    (0, "The *poor* sound made it hard to follow the scene."),
    (0, "A *pathetic* debut by a young director from the city."),
    (0, "The dialogue is *laughable* and the plot has holes."),
    (0, "What a *painful* hour and a half that was."),
    (0, "I *regret* that I paid for the ticket."),
    (0, "The last act is *bad* and the first one is not much better."),
    (0, "An *unfunny* copy of what is shown in the cinemas."),
    (0, "The whole cast is *mediocre* in this small drama."),
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


def read_sentences(model: TextClassifier, tokenizer: Any, length: int, device: str = "cpu") -> KeyWords:
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
