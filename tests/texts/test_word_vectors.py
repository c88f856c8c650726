"""Vectors of words from their neighbours, against their definition entry by entry."""

import numpy as np
import pytest

from attsvm.errors import ProblemError
from attsvm.texts.words import learn_word_vectors


def by_hand(documents, window):
    """Smoothed PPMI, entry by entry, and its leading singular directions."""
    vocabulary = sorted({word for document in documents for word in document})
    counts = np.zeros((len(vocabulary),) * 2)
    for document in documents:
        for i, word in enumerate(document):
            for j, other in enumerate(document):
                if i != j and abs(i - j) <= window:
                    counts[vocabulary.index(word), vocabulary.index(other)] += 1
    share = counts.sum(0) ** 0.75 / (counts.sum(0) ** 0.75).sum()
    with np.errstate(divide="ignore"):
        ppmi = np.maximum(np.log(counts / np.outer(counts.sum(1), share)), 0)
    return vocabulary, ppmi


def test_word_vectors_factor_the_mutual_information_of_neighbours():
    generator = np.random.default_rng(0)
    documents = [list(generator.choice(list("abcdefgh"), 30)) for _ in range(20)]
    vocabulary, ppmi = by_hand(documents, window=2)
    learnt = learn_word_vectors(documents, dim=8, min_documents=1, window=2)
    assert sorted(learnt.vocabulary) == vocabulary
    vectors = learnt.table[[learnt.vocabulary.index(word) for word in vocabulary]]
    # left vectors times root singular values have the Gram matrix (A A')^(1/2); cosines are those of unit vectors
    left, values, _ = np.linalg.svd(ppmi)
    gram = left * values @ left.T
    cosines = gram / np.sqrt(np.outer(gram.diagonal(), gram.diagonal()))
    np.testing.assert_allclose(vectors @ vectors.T, cosines, atol=1e-4)


def test_the_vocabulary_counts_documents_and_the_seed_decides_everything():
    texts = [text.split() for text in ["a a a b", "a b c", "c b d d d"] * 3 + ["e e e e e e"]]
    learnt = learn_word_vectors(texts, dim=2, min_documents=2)
    assert learnt.vocabulary == ("a", "b", "d", "c")
    again = learn_word_vectors(texts, dim=2, min_documents=2)
    assert learnt.table.tobytes() == again.table.tobytes()
    with pytest.raises(ProblemError, match="expected at least two words that occur in at least 20 of 10 texts, got 0"):
        learn_word_vectors(texts, min_documents=20)
    with pytest.raises(ProblemError, match="window: expected an integer >= 1, got 0"):
        learn_word_vectors(texts, window=0)


def test_sequences_cut_long_texts_drop_unknown_words_and_answer_texts_without_known_ones():
    learnt = learn_word_vectors([["a", "b"], ["b", "a", "c"]], dim=2, min_documents=2, max_length=3)
    found, _ = learnt.encode([["a", "never", "b"], ["b"] * 100_000, ["nothing", "known"], []])
    assert list(found.lengths) == [2, 3, 1, 1]
    a, b = learnt.table[learnt.vocabulary.index("a")], learnt.table[learnt.vocabulary.index("b")]
    np.testing.assert_array_equal(found[0], [a, b])
    np.testing.assert_array_equal(found[1], [b, b, b])
    np.testing.assert_array_equal(found[3], np.zeros((1, 2)))
