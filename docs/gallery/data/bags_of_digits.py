"""
Which picture of a bag decides?
===============================

Each bag contains five handwritten digits. Its label says whether one of them is a nine. ``AttentionClassifier`` sees
only the labels of the bags, yet its attention finds the nines.
"""

import matplotlib.pyplot as plt

import attsvm

bags = attsvm.datasets.digit_bags(1000, 300, seed=0)
classifier = attsvm.AttentionClassifier(max_steps=1500, random_state=0).fit(bags.train, bags.train_labels)
print("accuracy", classifier.score(bags.test, bags.test_labels))

attention = classifier.attention(bags.test)
_, axes = plt.subplots(4, 5, figsize=(5, 4.8))
for row, bag in zip(axes, (bags.test_labels == 1).nonzero()[0]):
    for axis, token in zip(row, range(bags.test.offsets[bag], bags.test.offsets[bag + 1])):
        axis.imshow(bags.test.table[bags.test.ids[token]].reshape(8, 8), cmap="Greys")
        axis.set_title(f"{attention[token]:.2f}", color="C3" if attention[token] > 0.5 else "grey", fontsize=9)
        axis.axis("off")
