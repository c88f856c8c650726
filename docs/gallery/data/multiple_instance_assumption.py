"""
The multiple-instance assumption
================================

The *presence* test checks the multiple-instance assumption: a bag is positive because it contains the tokens of a
concept. In training, all negative bags contain a poison token. In the test set, the positive bags contain it.
``AttentionClassifier`` learns that the poison makes a bag negative, and is wrong on all test bags. Adding a token never
lowers the output of ``DetectorClassifier``, so it has to learn the concept.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

import attsvm
from attsvm.datasets import Sequences

data = attsvm.datasets.mil_unit_tests("presence", seed=0)


def with_squares(bags):
    """Clipped features and their squares, because concept and background differ in variance."""
    x = np.clip(bags.table, -5, 5)
    return Sequences(np.hstack([x, x**2]).astype(np.float32), bags.ids, bags.offsets)


train, test = with_squares(data.train), with_squares(data.test)
_, axes = plt.subplots(1, 2, figsize=(6.5, 2.6), layout="constrained")
for axis, kind in zip(axes, (attsvm.AttentionClassifier, attsvm.DetectorClassifier)):
    classifier = kind(random_state=0).fit(train, data.train_labels)
    decision = classifier.decision_function(test)
    parts = [decision[data.test_labels == label] for label in (0, 1)]
    axis.hist(parts, bins=30, histtype="stepfilled", alpha=0.6, label=["negative", "positive"])
    axis.axvline(0, color="black", linewidth=0.8, linestyle="--")
    axis.set_title(f"{kind.__name__}, AUROC {roc_auc_score(data.test_labels, decision):.2f}", fontsize=9)
    axis.set_xlabel("f(X) of test bags")
axes[0].set_ylabel("bags")
axes[1].legend(frameon=False)

# %%
# The instance scores of ``DetectorClassifier`` find the tokens of the concept.
scores = classifier.instance_scores(test)
print("instance AUROC", round(roc_auc_score(data.test_roles == 1, scores), 3))
