"""
5. Bags and texts
=================

Often only the sequence as a whole has a label, and nobody knows which of its tokens matter.
:class:`attsvm.AttentionClassifier` learns from such labels. It is a scikit-learn estimator: prompt attention with a
linear prediction head. This tutorial applies it to bags of pictures and to short texts, and compares it with simple
baselines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import attsvm

# %%
# Bags of digits
# --------------
#
# A bag contains five handwritten digits of 8 by 8 pixels. It is positive if at least one of them is a nine. The
# training and test bags share no pictures.

bags = attsvm.datasets.digit_bags(1000, 500, seed=0)
X, y, X_test, y_test = bags.train, bags.train_labels, bags.test, bags.test_labels

fig, axes = plt.subplots(2, 5, figsize=(6, 2.6), layout="constrained")
for row, bag in zip(axes, (int(np.flatnonzero(y == 1)[0]), int(np.flatnonzero(y == 0)[0])), strict=True):
    for axis, number in zip(row, range(X.offsets[bag], X.offsets[bag + 1]), strict=True):
        axis.imshow(X.table[X.ids[number]].reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel("positive" if y[bag] else "negative")

# %%
# ``X`` is a :class:`attsvm.datasets.Sequences`, which stores sequences of different lengths without padding. A list
# of arrays or a padded array with a mask works as well.

classifier = attsvm.AttentionClassifier(random_state=0).fit(X, y)
accuracy = classifier.score(X_test, y_test)
print(f"accuracy on {len(X_test)} test bags: {accuracy:.3f}")

# %%
# Is that good? Compare with baselines
# ------------------------------------
#
# An accuracy alone says little. We compare it with three baselines on the same bags:
#
# - *mean token*: logistic regression on the mean picture of a bag, that is, attention that cannot select;
# - *all pixels*: logistic regression on the five pictures side by side, in their order;
# - *told the nine*: logistic regression on single pictures **with their digits**, and a bag is positive if one of its
#   pictures is called a nine. This baseline sees labels that the other methods do not, and shows what they could reach.


def pictures(sequences):
    """Array (bags, 5, 64)."""
    return sequences.table[sequences.ids].reshape(len(sequences), 5, 64)


def logistic():
    """Logistic regression on scaled columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))


train, test = pictures(X), pictures(X_test)
mean = logistic().fit(train.mean(axis=1), y).score(test.mean(axis=1), y_test)
pixels = logistic().fit(train.reshape(len(X), -1), y).score(test.reshape(len(X_test), -1), y_test)
nine = logistic().fit(train.reshape(-1, 64), bags.train_digits == 9)
told = np.mean(nine.predict(test.reshape(-1, 64)).reshape(len(X_test), 5).any(axis=1) == (y_test == 1))

for name, value in [
    ("mean token", mean),
    ("all pixels", pixels),
    ("attention", accuracy),
    ("told the nine", told),
]:
    error = 1.96 * np.sqrt(value * (1 - value) / len(X_test))
    print(f"{name:14} {value:.3f} ± {error:.3f}")

# %%
# The ± is a 95 % interval for the choice of test bags. It does not include the spread over training sets. To measure
# that, repeat with several seeds, as :doc:`/notes/bag_models` does.
#
# Does it look at the nine?
# -------------------------
#
# The classifier never saw which picture is the nine. In positive test bags, we can check where it looks.

selected = X_test.offsets[:-1] + classifier.selected(X_test)  # numbers of the selected tokens
positive = y_test == 1
hit = np.mean(bags.test_digits[selected[positive]] == 9)
print(f"the most attended picture of a positive bag is a nine: {hit:.3f} (by chance 0.2)")

weights = classifier.attention(X_test)
fig, axes = plt.subplots(2, 5, figsize=(6, 2.9), layout="constrained")
for row, bag in zip(axes, np.flatnonzero(positive)[:2], strict=True):
    for axis, number in zip(row, range(X_test.offsets[bag], X_test.offsets[bag + 1]), strict=True):
        axis.imshow(X_test.table[X_test.ids[number]].reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[], title=f"{weights[number]:.2f}")

# %%
# The numbers give the attention to each picture.
#
# What does the theory say here? The classifier stops early, because longer training worsens the selection on new bags,
# and a bag without a nine has no correct token. So its attention is not saturated, and its direction is not that of an
# Att-SVM. The report says how far away it is.

report = classifier.margin_report(X)
print(f"separable: {report.separable}; margin ratio {report.margin_ratio:.2g}; correlation {report.correlation:.2f}")

# %%
# Detectors
# ---------
#
# Attention can also learn that some token makes a bag negative. :class:`attsvm.DetectorClassifier` cannot, because
# adding a token never lowers its output. This suits these bags, which are positive because of a picture that they
# contain. In both classifiers, ``instance_scores`` scores single pictures. The AUROC says how well these scores
# separate nines from other digits.

from sklearn.metrics import roc_auc_score

detectors = attsvm.DetectorClassifier(random_state=0).fit(X, y)
for name, model in [("attention", classifier), ("detectors", detectors)]:
    ranked = roc_auc_score(bags.test_digits == 9, model.instance_scores(X_test))
    print(f"{name:14} accuracy {model.score(X_test, y_test):.3f}, AUROC of single pictures {ranked:.3f}")

# %%
# :doc:`/guide/estimator` says when to use which, and :doc:`/notes/bag_models` compares both with other models.
#
# Words
# -----
#
# The same estimator classifies texts: each token is the vector of a word. Here we generate the texts, so that we know
# which words decide. Each text has one opinion word among neutral words.

generator = np.random.default_rng(1)
NEUTRAL = ["the", "film", "was", "about", "a", "man", "and", "his", "dog", "who", "went", "to", "sea", "in", "boat"]
GOOD, BAD = ["wonderful", "moving", "funny", "brilliant"], ["boring", "awful", "weak", "clumsy"]


def review(label):
    """Twelve words, one of which is an opinion."""
    words = list(generator.choice(NEUTRAL, size=11))
    words.insert(int(generator.integers(12)), str(generator.choice(GOOD if label else BAD)))
    return words


labels = np.arange(400) % 2
reviews = [review(label) for label in labels]
print(" ".join(reviews[0]), "->", labels[0])

# %%
# Each word needs a vector; random ones suffice here. For real texts, learn the vectors from the texts, as ``attsvm
# fit-text`` does, or take them from a language model.

vocabulary = sorted({word for words in reviews for word in words})
number = {word: i for i, word in enumerate(vocabulary)}
table = generator.normal(size=(len(vocabulary), 30))
ids = np.array([number[word] for words in reviews for word in words])
texts = attsvm.datasets.Sequences(table, ids, offsets=np.arange(0, len(ids) + 1, 12))
train_texts, test_texts = texts[np.arange(300)], texts[np.arange(300, 400)]

reader = attsvm.AttentionClassifier(random_state=0).fit(train_texts, labels[:300])
print(f"accuracy on {len(test_texts)} test texts: {reader.score(test_texts, labels[300:]):.2f}")

# %%
# Which words receive more attention than their share of the text?

received = reader.attention(test_texts)
words = np.array(vocabulary)[test_texts.ids]
ratio = {word: 12 * received[words == word].mean() for word in np.unique(words)}
ordered = sorted(ratio, key=ratio.get, reverse=True)

fig, axis = plt.subplots(figsize=(5, 5), layout="constrained")
colours = ["tab:green" if word in GOOD else "tab:red" if word in BAD else "0.7" for word in ordered]
axis.barh(ordered[::-1], [ratio[word] for word in ordered[::-1]], color=colours[::-1])
axis.axvline(1, color="k", linewidth=0.8)
axis.set(xlabel="attention / share of the text", title="green and red: opinions")
print("eight most attended words:", ", ".join(ordered[:8]))

# %%
# The opinions come first. One of them receives less than its share, yet its texts are classified correctly: attention
# shows what a classifier looks at, but not everything that it uses. On real texts, check the counts as well, because
# rare words often have the largest ratios.
#
# For a data set in a file, ``attsvm fit-text reviews.csv --text text --label label --out reviews`` learns word
# vectors, trains the classifier, compares it with TF-IDF and with the mean of the same vectors, and writes a page.
# :doc:`/guide/estimator` and :doc:`/guide/texts` have the details.
