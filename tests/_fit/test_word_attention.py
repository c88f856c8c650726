"""What attention over words looks at, against sums written out text by text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm._fit.texts.fit_text import mean_tokens
from attsvm._fit.texts.word_attention import word_attention
from attsvm.datasets import Sequences


@st.composite
def attended(draw):
    """Texts as word numbers, the attention of each word, and labels 0..2."""
    texts = draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=8))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    attention = [generator.dirichlet(np.ones(len(text))) for text in texts]
    labels = np.array([draw(st.integers(0, 2)) for _ in texts])
    table = generator.standard_normal((6, 3)).astype(np.float32)
    offsets = np.cumsum([0, *map(len, texts)])
    return texts, attention, labels, Sequences(table, np.concatenate(texts), offsets)


@given(attended())
def test_words_gather_their_attention_text_by_text(data):
    texts, attention, labels, sequences = data
    found = word_attention(
        np.concatenate(texts), sequences.lengths, np.concatenate(attention), labels, num_words=6, num_classes=3
    )
    for word in range(6):
        received = [of[np.array(text) == word].sum() for text, of in zip(texts, attention, strict=True)]
        assert found.documents[word] == sum(word in text for text in texts)
        assert found.frequency[word] == pytest.approx(np.mean([text.count(word) / len(text) for text in texts]))
        assert found.attention[word] == pytest.approx(np.mean(received))
        if found.documents[word] > 1:
            # the linearised ratio estimator, written out over the texts that the word occurs in
            pairs = [
                (got, text.count(word) / len(text)) for got, text in zip(received, texts, strict=True) if word in text
            ]
            above, below = np.array(pairs).T
            rest = above - above.sum() / below.sum() * below
            expected = rest.std(ddof=1) * np.sqrt(len(rest)) / below.sum()  # the residuals sum to 0
            assert found.error[word] == pytest.approx(expected, abs=1e-12)
        else:
            assert np.isnan(found.error[word])
        if not found.documents[word]:
            assert np.isnan(found.over_frequency[word])
            continue
        per_class = [np.mean(np.array(received)[labels == c]) if (labels == c).any() else 0.0 for c in range(3)]
        assert found.by_class[word] == pytest.approx(np.array(per_class) / sum(per_class))
    np.testing.assert_allclose(
        mean_tokens(sequences), [np.mean(sequences[i], axis=0) for i in range(len(texts))], atol=1e-6
    )


def test_equal_attention_gives_every_word_its_frequency():
    words, lengths, attention = np.array([0, 0, 1, 2, 1]), np.array([3, 2]), np.array([1, 1, 1, 1.5, 1.5]) / 3
    found = word_attention(words, lengths, attention, np.array([0, 1]), num_words=3, num_classes=2)
    np.testing.assert_allclose(found.over_frequency, 1)
