"""``attsvm next-token``, end to end on a corpus whose graphs are known."""

import json
import re
import warnings

import networkx as nx
import numpy as np
import pytest

import attsvm
from attsvm._fit import NextWordOptions, fit_next_words, read_corpus
from attsvm.texts.tokenizers import split_words
from oracles.pages import loads

WORDS = ["the", "cat", "dog", "sat", "mat", "red"]


def corpus(number: int) -> list[str]:
    """After "the" comes a "cat" or a "dog" if the context has one, so that these two contradict each other."""
    generator = np.random.default_rng(0)
    texts = []
    for _ in range(number):
        text = generator.choice(["sat", "mat", "red"], 3).tolist() + generator.permutation(["cat", "dog"]).tolist()
        for _ in range(3):
            text += ["the", generator.choice(["cat", "dog"], p=[0.7, 0.3])]
        texts.append(" ".join(map(str, text)))
    return texts


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("next")
    (folder / "corpus.txt").write_text("\n".join(corpus(120)) + "\n", encoding="utf-8")
    return folder


SIZES = ("--vocabulary", 6, "--words", 2, "--contexts", 200, "--length", 8, "--steps", 400)


def test_page_and_result_state_the_graph_and_the_agreement(fitted, command):
    out = fitted / "out"
    code, printed, error = command("next-token", fitted / "corpus.txt", *SIZES, "--out", out, "--json")
    assert code == 0, error
    result = json.loads(printed)
    assert json.loads((out / "result.json").read_text()) == result
    the = next(word for word in result["last_words"] if word["word"] == "the")
    assert (the["status"], the["finite_status"], the["largest_component"]) == ("optimal", "converged", 2)
    assert the["loss"] == pytest.approx(the["least_loss"], abs=0.02)
    agreement = the["held_out"]["agreement"]
    assert agreement["prediction"]["share"] > max(0.95, agreement["recent"]["share"])
    low, high = agreement["prediction"]["interval"]
    assert low < agreement["prediction"]["share"] <= high
    page = (out / "index.html").read_text()
    drawn = re.search(r'class="component several"[^>]*>(.*?)</div>', page).group(1)
    assert set(re.findall(r">(\w+)</span>", drawn)) == {"cat", "dog"}
    assert page.count("<section class=") == 2
    assert "do not contain their next word" in page
    assert loads(page) == []


def test_components_are_those_of_networkx_and_the_loss_ends_at_its_infimum():
    found = fit_next_words(corpus(80), NextWordOptions(vocabulary=6, words=3, length=6, contexts=100, steps=400))
    for one in found.last_words:
        graph = nx.DiGraph()
        for document in found.train.documents:
            for at in np.flatnonzero(document[:-1] == one.number):
                context, label = document[max(at - 5, 0) : at + 1], document[at + 1]
                if label in context:
                    graph.add_edges_from((int(label), int(word)) for word in context if word != label)
        if one.graph.num_contexts < 100:  # otherwise they are a sample
            expected = {frozenset(part) for part in nx.strongly_connected_components(graph)}
            assert {frozenset(part) for part in one.graph.components(one.number)} == expected
        assert -1e-5 < one.loss - one.finite.loss < 0.05


def test_an_infeasible_order_has_no_prediction_and_says_so(fitted, command, monkeypatch):
    # on a line, two words of one component have equal logits for W = 0 only, which puts them above no other word
    on_a_line = lambda _, __, number, **___: np.arange(1.0, number + 1)[:, None]  # noqa: E731
    monkeypatch.setattr("attsvm._fit.texts.next_words.neighbour_vectors", on_a_line)
    code, printed, error = command("next-token", fitted / "corpus.txt", *SIZES, "--dim", 1, "--json")
    assert code == 0, error
    result = json.loads(printed)
    infeasible = [word for word in result["last_words"] if word["status"] == "infeasible"]
    assert infeasible
    for word in infeasible:
        assert word["value"] is None
        assert word["held_out"]["contexts"] == 0
        assert word["held_out"]["agreement"]["prediction"]["share"] is None
    assert result["held_out"]["without_prediction"] == sum(w["held_out"]["without_prediction"] for w in infeasible)


def test_the_limit_of_contexts_takes_no_memory_and_too_long_steps_are_named():
    few, many = (
        fit_next_words(corpus(20), NextWordOptions(vocabulary=6, words=2, contexts=number, length=number, steps=40))
        for number in (1_000, 10**9)
    )
    for one, other in zip(few.last_words, many.last_words, strict=True):
        assert one.loss == other.loss
        assert (one.scores == other.scores).all()
    with pytest.raises(attsvm.ProblemError, match=r"learning_rate: expected .* finite, got 1e\+38"):
        fit_next_words(corpus(20), NextWordOptions(vocabulary=6, words=2, steps=40, learning_rate=1e38))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "none.txt: no such file"),
        (["corpus.pdf"], "corpus.pdf: expected a file .txt, .parquet"),
        (["empty.txt"], "empty.txt: expected texts with words, got none"),
        (["one.txt"], "texts: expected at least two, so that some can be set apart, got 1"),
        (
            ["plain.txt"],
            "texts: expected contexts that contain their next word and another one",
        ),
        (["corpus.txt", "--length", "1"], "length: expected an integer >= 2, got 1"),
    ],
)
def test_wrong_input_is_one_line(arguments, message, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    for name, text in (("corpus", "a b\nb a\n"), ("empty", " \n.\n"), ("one", "a b c\n"), ("plain", "a b\nc d\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    refused(message, "next-token", *arguments)


def test_a_corpus_is_read_from_lines_and_from_tables(tmp_path):
    texts = ["One text, twice one.", "Don't <br /> stop"]
    (tmp_path / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    (tmp_path / "a.csv").write_text('words,label\n"One text, twice one.",x\nDon\'t <br /> stop,\n', encoding="utf-8")
    assert read_corpus(str(tmp_path / "a.txt")) == read_corpus(str(tmp_path / "a.csv"), "words") == texts
    assert split_words(texts) == [["one", "text", "twice", "one"], ["don't", "stop"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit_next_words(corpus(20), NextWordOptions(vocabulary=3, words=1, steps=1))
    assert len(found.train.names) == 4
    assert found.train.names[-1] == "‹other›"
