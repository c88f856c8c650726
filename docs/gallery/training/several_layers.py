"""
Induction: which path do two layers select?
===========================================

Each sequence of words ends with a word that occurred before, … a b … a. The label is b, the word that followed it. A
single attention layer cannot solve this, because the query a does not know where b is. Two layers can: in the first,
each position reads the preceding word, and in the second, the query selects the position that has read a.
``stack.path`` finds both steps. Colour marks the selected path; grey positions do not reach the output.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

words, n, T = "abcdef", 48, 6
d = 2 * len(words) + T
generator = np.random.default_rng(0)
tokens, queries = np.zeros((n, T, d)), np.zeros((n, d))
said = np.array([generator.permutation(len(words)) for _ in range(n)])
first = generator.integers(T - 2, size=n)  # where the last word occurred before
said[:, -1] = said[np.arange(n), first]
labels = said[np.arange(n), first + 1]
# a word, its position, and room for a word that was read
tokens[:, :, : len(words)] = np.eye(len(words))[said]
tokens[:, :, len(words) : len(words) + T] = np.eye(T)
queries[:, : len(words)] = tokens[:, -1, : len(words)]
copies, head = np.zeros((1, d, d)), np.zeros((len(words), d))
copies[0, -len(words) :, : len(words)] = np.eye(len(words))
head[:, : len(words)] = 3 * np.eye(len(words))

stack = attsvm.Stack(attsvm.Problem(tokens, labels, queries, head), layers=2, causal=True, values=copies)
start = {name: 0.01 * generator.standard_normal((d, d)) for name in ("W0", "W1")}
run = stack.train(steps=2000, loss="cross_entropy", init=start)

lower, upper = (stack.layer(run, number).selected.argmax(axis=-1) for number in (0, 1))
print(f"b is selected in {np.mean(upper == first + 1):.0%} of the sequences")
print(f"and has read a in {np.mean(lower[np.arange(n), upper] == upper - 1):.0%}")

shown = [0, 1, 2]
_, axis = plt.subplots(figsize=(7, 3))
run.plot(stack, sequences=shown, ax=axis)
for place, i in enumerate(shown):
    for t in range(T):
        label = words[said[i, t]]
        axis.text(place * (T + 1) + t, -0.3, label, ha="center", weight="bold" if t == first[i] + 1 else "normal")
_ = axis.set(ylim=(-0.5, 2.2), frame_on=False)
