"""The page of a fit on texts: one self-contained file, figures inside, light and dark."""

import re
from html import escape
from typing import Any

import numpy as np

from attsvm.apps.texts.result import Part, TextFit
from attsvm.report.document import cards_element, document, figures_element, table_element
from attsvm.report.fit.figures import Drawn
from attsvm.report.fit.words import number, percent
from attsvm.report.texts.words import notes, number_of_words, tables, verdict

LISTS_STYLE = """
.lists { display: grid; gap: 0 2.4rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)) }
.lists thead th { white-space: nowrap }
.lists th { width: auto; color: var(--ink); font-size: .95rem }
.lists thead th { color: var(--soft); font-size: .8rem; border-top: 0 }
.lists td, .lists thead th + th { text-align: right; padding-left: .8rem }
"""

SHORT, LONG = 30, 120
"""Words of an example: enough to see, few enough to read."""

_TAG = re.compile(r"\s*</?[a-z][^<>]*>\s*", re.IGNORECASE)


def text_page(fit: TextFit, result: dict[str, Any], drawn: list[Drawn], command: str) -> str:
    """The whole page as HTML.

    Parameters
    ----------
    fit : TextFit
    result : dict
        Of :func:`attsvm.report.texts.numbers.text_numbers`.
    drawn : list of Drawn
        The figures, in their order.
    command : str
        That was run; it stands under the figures.
    """
    data, training, accuracy = result["data"], result["training"], result["accuracy"]
    title = f"{data['source'].rstrip('/').rsplit('/', 1)[-1]}: attention over {data['tokens']}"
    kicker = (
        f"{data['train']:,} training and {data['test']:,} test texts · {data['vocabulary']:,} words, "
        f"d = {data['dim']} · {training['optimizer']} · {training['steps_done']:,} steps in "
        f"{result['seconds']['training']:.0f} s"
    )
    cards = [
        ("Test accuracy", percent(accuracy["test"]), f"attention over {data['tokens']}"),
        ("Mean token", percent(accuracy["mean_token"]["test"]), "logistic regression on the mean of the same vectors"),
        ("TF-IDF", percent(accuracy["tf_idf"]["test"]), "logistic regression on the words of whole texts"),
        (
            "Effective words",
            number_of_words(result["effective_words"]["median"]),
            f"of {result['effective_words']['median_length']:.0f} in the median text; the exponential of the "
            "attention's entropy",
        ),
    ]
    body = f"""<dl class="cards">{cards_element(cards)}</dl>
<h2>Words</h2>
<p class="lead">{escape(_about_words(result))}</p>
<div class="lists">{_word_lists(result)}</div>
<h2>Examples</h2>
<p class="lead">Test texts drawn at random, for each label two classified correctly and one wrongly. The darker a word,
the more attention it receives; words in grey are not read. Point at a word to see its share.</p>
<div class="examples">{"".join(_example(fit, row) for row in examples(fit, result["seed"]))}</div>
<h2>Figures</h2>
<div class="figures">{figures_element(drawn, command, made_by=f"Seed {result['seed']}", wide={"words"})}</div>
<h2>Numbers</h2>
<div class="tables">{"".join(table_element(*one) for one in tables(result))}</div>"""
    footer = f"""<p><code>{escape(command)}</code></p>
<p>attsvm {escape(result["version"])} · seed {result["seed"]} · {result["seconds"]["everything"]:.1f} s in all · data
SHA-256 <code>{escape(data["sha256"])}</code> · all numbers in <code>result.json</code>.</p>"""
    return document(
        title,
        kicker=kicker,
        verdict=verdict(result),
        notes=notes(result),
        body=body,
        footer=footer,
        style=LISTS_STYLE,
    )


def examples(fit: TextFit, seed: int) -> list[int]:
    """Numbers of the test texts to show: for each of up to four classes two right and one wrong."""
    generator = np.random.default_rng(seed)
    lengths, right = fit.test.sequences.lengths, fit.test.predicted == fit.test.texts.labels
    readable = (lengths >= SHORT) & (lengths <= LONG)
    chosen: list[int] = []
    for label in fit.classes[:4]:
        for wanted, how_many in ((right, 2), (~right, 1)):
            candidates = np.flatnonzero(wanted & (fit.test.texts.labels == label))
            short = candidates[readable[candidates]]
            drawn = generator.permutation(short if len(short) >= how_many else candidates)
            chosen += [int(row) for row in drawn[:how_many]]
    return chosen


def _about_words(result: dict[str, Any]) -> str:
    return (
        "Attention over frequency: the attention that a word receives in a test text, over its share of the text's "
        "words, both as means over the test texts. 1 is what equal attention would give. Class share: how a word's "
        "attention divides among the labels, as if they had equally many texts. Listed are the "
        f"{result['words']['listed']:,} words that occur in at least {result['words']['listed_from']} test texts."
    )


def _word_lists(result: dict[str, Any]) -> str:
    words = result["words"]
    lists = [("Most attended", words["most"]), ("Least attended", words["least"])]
    lists += [(f"Most in “{name}”", rows) for name, rows in words["by_class"].items()]
    return "".join(_word_list(name, rows) for name, rows in lists)


def _word_list(name: str, rows: list[dict[str, Any]]) -> str:
    columns = "".join(f'<th scope="col">{column}</th>' for column in ("", "over frequency", "class share"))
    body = "".join(
        f'<tr><th scope="row">{escape(row["word"])}</th><td>{number(row["over_frequency"])}</td>'
        f"<td>{row['class_share']:.0%} in “{escape(row['class'])}”</td></tr>"
        for row in rows
    )
    return f"<table><caption>{escape(name)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"


def _example(fit: TextFit, row: int) -> str:
    part: Part = fit.test
    label, predicted = part.texts.labels[row], part.predicted[row]
    wrong = "" if label == predicted else ", wrongly"
    heading = (
        f"Label “{escape(label)}”, classified as “{escape(predicted)}”{wrong} "
        f"<small>probability {part.probability[row]:.2f} · {number_of_words(part.effective[row])} of "
        f"{part.sequences.lengths[row]} words effective</small>"
    )
    return f"<article><h3>{heading}</h3><p>{_shaded(fit, row)}</p></article>"


def _shaded(fit: TextFit, row: int) -> str:
    text, attention = fit.test.texts.texts[row], fit.test.attention_of(row)
    pieces, at = [], 0
    for (_, begin, end), share in zip(fit.encoder.known(text), attention, strict=False):
        opacity = share / attention.max()
        pieces.append(_between(text[at:begin]))
        pieces.append(f'<mark style="--a:{opacity:.2f}" title="{share:.1%}">{escape(text[begin:end])}</mark>')
        at = end
    rest = _between(text[at:])
    return "".join(pieces) + (rest if len(rest) < 200 else rest[:200].rsplit(" ", 1)[0] + " … (cut here)")


def _between(text: str) -> str:
    return escape(_TAG.sub(" ", text))
