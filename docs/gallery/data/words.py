"""
Which words decide?
===================

Each review has four words from a vocabulary of twelve, and each word is a vector. One word of each review determines
its label. The attention learns which words matter, and the prediction head learns which label they indicate.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

words = np.array(["good", "great", "fine", "bad", "awful", "poor", "the", "film", "was", "plot", "and", "actor"])
vectors = np.random.default_rng(0).normal(size=(12, 16))
generator = np.random.default_rng(1)
deciding = generator.integers(0, 6, 600)
ids = generator.permuted(np.stack([deciding, *generator.integers(6, 12, (3, 600))], axis=1), axis=1)
labels = np.where(deciding < 3, "positive", "negative")

classifier = attsvm.AttentionClassifier(max_steps=1500, random_state=0).fit(vectors[ids[:400]], labels[:400])
print("accuracy", classifier.score(vectors[ids[400:]], labels[400:]))

attention = classifier.attention(vectors[ids])
mean = np.array([attention[ids == word].mean() for word in range(12)])
order = mean.argsort()
_, axis = plt.subplots(figsize=(5, 3.2))
axis.barh(words[order], mean[order])
axis.axvline(0.25, color="k", linestyle="--", linewidth=1)
axis.set(xlabel="mean attention (dashed: uniform over four words)")
axis.grid(False, axis="y")
