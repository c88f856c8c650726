r"""
1. The theory in twenty minutes
===============================

When training makes the weights of a softmax attention layer grow without bound, the layer behaves like a support vector
machine. This tutorial shows what that means in two dimensions, where everything can be drawn. You should know gradient
descent and the linear max-margin SVM.

The model
---------

A sequence is a matrix :math:`X` whose rows are the tokens :math:`x_1, \dots, x_T`. The simplest attention layer has one
parameter, a *prompt* :math:`p`. It gives token :math:`t` the *logit* :math:`x_t^\top p`, turns the logits of the
sequence into probabilities, and averages the tokens:

.. math::

   a = \mathrm{softmax}(X p), \qquad o = \sum_t a_t x_t, \qquad f(X) = v^\top o .

The vector :math:`v` is the *prediction head*, which stays fixed here. We train :math:`p` on labels :math:`y_i = \pm 1`
with a decreasing loss :math:`\frac1n \sum_i \ell(y_i f(X_i))`, such as the logistic one.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

# %%
# Two sequences of three tokens are enough. Both labels are +1, and the prediction head reads the vertical coordinate.

tokens = np.array(
    [
        [[0.2, 1.0], [1.0, 0.1], [-0.9, -0.3]],
        [[1.1, 0.9], [0.3, 0.4], [0.1, -0.8]],
    ]
)
head = np.array([0.0, 1.0])
problem = attsvm.Problem(tokens, labels=[1, 1], head=head)
print(problem)

# %%
# Which token should the layer keep?
# ----------------------------------
#
# If the layer kept only token :math:`t` of a sequence, its output would be :math:`v^\top x_t`. The *score* of a token
# is :math:`\gamma_{it} = y_i\, v^\top x_{it}`: the larger the score, the smaller the loss. The token with the highest
# score is the *optimal token* of its sequence.

optimal = attsvm.optimal_tokens(problem)
print("scores:", attsvm.scores(problem).tolist())
print("optimal tokens:", optimal)

COLOURS = ["tab:blue", "tab:orange"]


def draw_tokens(axis, problem, selected):
    """Dots for tokens; a ring around the selected one of each sequence."""
    for number, (sequence, colour) in enumerate(zip(problem.tokens, COLOURS, strict=False)):
        axis.scatter(*sequence.T, color=colour, label=f"sequence {number + 1}", zorder=3)
        axis.scatter(*sequence[selected[number]], s=140, facecolors="none", edgecolors=colour, linewidths=1.5)
    axis.axhline(0, color="0.85", zorder=0)
    axis.axvline(0, color="0.85", zorder=0)
    axis.set_aspect("equal")


fig, axis = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
draw_tokens(axis, problem, optimal)
axis.annotate("", xy=(0, 0.45), xytext=(0, 0), arrowprops={"arrowstyle": "->", "color": "0.4"})
axis.text(-0.06, 0.3, "head v", color="0.4", ha="right")
axis.set(title="tokens; rings mark the optimal ones", xlabel="$x_1$", ylabel="$x_2$")
axis.legend(loc="lower right")

# %%
# Training
# --------
#
# By default, :func:`attsvm.train` takes steps of fixed length along the negative gradient (*normalised gradient
# descent*). Two things happen here. The attention *saturates*: each sequence puts nearly all of its probability on one
# token. The norm of :math:`p` grows without bound, because the loss keeps decreasing as the softmax becomes sharper. On
# other data, a run can also stop at a finite norm, with several tokens of a sequence sharing the probability.

run = attsvm.train(problem, steps=20_000)
history = run.history
print("selected tokens:", run.selected)

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8), layout="constrained")
shown = history["steps"] > 0
left.loglog(history["steps"][shown], 1 - history["probability"][shown])
left.set(xlabel="steps", ylabel="1 - probability of the kept token", ylim=(1e-16, 2))
right.loglog(history["steps"][shown], np.linalg.norm(history["weights"][shown], axis=-1), color="tab:green")
right.set(xlabel="steps", ylabel=r"$\Vert p \Vert$")
left.legend(["sequence 1", "sequence 2"])

# %%
# So :math:`p` does not converge, but its *direction* :math:`p / \Vert p \Vert` can. Which direction is it?
#
# The Att-SVM
# -----------
#
# Many directions keep the optimal tokens: every direction that gives the optimal token the largest logit in its
# sequence. Training prefers one of them. Among the prompts that keep each optimal token :math:`\alpha_i` with a
# *margin* of at least 1, take the shortest:
#
# .. math::
#
#    \min_p \; \Vert p \Vert_2 \quad \text{subject to} \quad (x_{i\alpha_i} - x_{it})^\top p \ge 1
#    \quad \text{for all } i \text{ and all } t \ne \alpha_i .
#
# This is the **Att-SVM**, a hard-margin SVM without intercept on the differences between tokens.

solution = attsvm.solve_svm(problem, optimal)
print(solution)
print(
    "p =", solution.direction.round(4), " norm:", round(solution.value, 4), " margin 1/norm:", round(solution.margin, 4)
)

# %%
# Each constraint is a half-plane of prompts. The shaded region below satisfies all constraints, and the Att-SVM is its
# point nearest to the origin. The constraints that are tight there belong to the *support tokens*. Moving any other
# token slightly does not change the solution.

print("support tokens of each sequence:", [np.flatnonzero(row).tolist() for row in solution.support])


def draw_constraints(axis, problem, selected, reach):
    """The feasible prompts, and the line of each constraint."""
    grid = np.linspace(*reach, 400)
    p = np.stack(np.meshgrid(grid, grid), axis=-1)
    feasible = np.ones(p.shape[:2], dtype=bool)
    for sequence, kept, colour in zip(problem.tokens, selected, COLOURS, strict=False):
        for t in np.delete(np.arange(len(sequence)), kept):
            margin = p @ (sequence[kept] - sequence[t])
            feasible &= margin >= 1
            axis.contour(grid, grid, margin, levels=[1.0], colors=colour, linewidths=1)
    axis.contourf(grid, grid, feasible, levels=[0.5, 1.5], colors=["tab:green"], alpha=0.15)
    axis.axhline(0, color="0.85", zorder=0)
    axis.axvline(0, color="0.85", zorder=0)
    axis.set_aspect("equal")


fig, axis = plt.subplots(figsize=(4.4, 4.0), layout="constrained")
draw_constraints(axis, problem, optimal, (-1, 5))
axis.plot([0, 5 * solution.direction[0]], [0, 5 * solution.direction[1]], "k:", linewidth=1)
axis.plot(*solution.direction, "k*", markersize=13, label="Att-SVM")
axis.plot(*history["weights"].T, color="tab:red", label="path of the prompt")
axis.set(xlim=(-1, 5), ylim=(-1, 5), xlabel="$p_1$", ylabel="$p_2$")
axis.legend(loc="lower right")

# %%
# The path turns towards the dotted ray through the Att-SVM. The figure shows only the first steps, where the path has
# not reached the ray yet; it does so at much larger norms. The *direction error* is 1 minus the cosine of the angle
# between path and ray. The *margin ratio* is the margin of the run divided by the best possible margin.

print(f"direction error: {attsvm.direction_error(run, solution):.1e}")
print(f"margin ratio:    {attsvm.margin_ratio(problem, run):.5f}")
axes = run.plot(solution)

# %%
# **Why does this happen?** Once the softmax is nearly saturated, the gradient is a sum over dropped tokens, each
# weighted by its small remaining probability :math:`\exp(-(x_{i\alpha_i} - x_{it})^\top p)`. The tokens with the
# smallest margin dominate it exponentially. Gradient descent therefore increases the smallest margin, as it does for
# logistic regression on separable data. The direction with the largest minimum margin is the Att-SVM.
#
# Not every selection is possible
# -------------------------------
#
# A prompt can keep a token only if that token is a vertex of the convex hull of its sequence. All sequences must also
# agree on one prompt. If no prompt keeps the given tokens, the Att-SVM is *infeasible*. The solver then returns a
# proof: multipliers :math:`\lambda \ge 0` that make the differences between tokens cancel, :math:`\sum
# \lambda_{it}(x_{i\alpha_i}
# - x_{it}) = 0`.

middle = attsvm.Problem(np.array([[[1.0, 0.5], [0.0, 0.5], [-1.0, 0.5]]]), labels=[1], head=head)
impossible = attsvm.solve_svm(middle, [1])  # the token between the other two
print(impossible.status, "with multipliers", impossible.dual.round(3).tolist())

# %%
# The best token is not always kept
# ---------------------------------
#
# Gradient descent sees only the local slope of the loss, so it may end at another selection. A selection is *locally
# optimal* if the selected token of every sequence scores higher than each of its **support** tokens. Near such a
# selection, gradient descent has no reason to leave, even if a more distant token has a higher score.
#
# In the next sequence, token 0 has the highest score. The support tokens of token 1 all score lower, so token 1 is
# locally optimal too. The start of training decides which one the layer keeps.

trap = attsvm.Problem(np.array([[[1.0, 1.0], [-1.0, 0.6], [-0.6, 0.2]]]), labels=[1], head=np.array([0.0, 1.0]))
print("scores:", attsvm.scores(trap).round(2).tolist())
starts = np.array([[1.0, -1.0], [0.0, 0.0], [-1.0, 1.5], [-2.0, 1.0], [-2.5, -0.5], [-4.0, 1.0]])
runs = attsvm.train(trap, init=starts, steps=5000)
for start, kept, kind in zip(starts, runs.selected[:, 0], attsvm.classify(trap, runs).kind, strict=True):
    print(f"start {start!s:12} keeps token {kept}: {kind}")

fig, axis = plt.subplots(figsize=(4.6, 3.6), layout="constrained")
early = runs.history["steps"] <= 100
for number, kept in enumerate(runs.selected[:, 0]):
    path = runs.history["weights"][early, number]
    axis.plot(*path.T, color=COLOURS[kept], linewidth=1.2)
    axis.plot(*path[0], "o", color=COLOURS[kept], markersize=4)
for token, colour in enumerate(COLOURS):
    ray = attsvm.solve_svm(trap, [token]).direction
    ray = 9 * ray / np.linalg.norm(ray)
    axis.plot([0, ray[0]], [0, ray[1]], "--", color=colour, label=f"Att-SVM of token {token}")
axis.set(xlabel="$p_1$", ylabel="$p_2$", title="the start decides", aspect="equal", ylim=(-4, 7.5))
axis.legend(loc="lower left")

# %%
# :func:`attsvm.classify` distinguishes four cases: *global* (every sequence keeps its optimal token), *local*, *not
# local*, and *undecided* (the softmax is not saturated, so the selection can still change or the run stops at a finite
# norm).
#
# Other optimisers, other norms
# -----------------------------
#
# The 2-norm in the Att-SVM comes from the use of gradient descent. Mirror descent with the potential :math:`\frac1q
# \Vert p \Vert_q^q` leads to the Att-SVM in the :math:`\ell_q` norm instead: it measures length differently, so a
# different direction has the largest margin per unit length. An exponent below 2 favours prompts with a few large
# entries; an exponent above 2 favours entries of similar size.
#
# In the first example, two constraints are tight, so the solution is a corner of the region, and this corner is nearest
# to the origin in many norms. A sequence with one support token shows the difference between norms.

slanted = attsvm.Problem(np.array([[[0.9, 0.5], [0.0, 0.0], [-0.5, -0.8]]]), labels=[1], head=np.array([1.0, 1.0]))
EXPONENTS = (1.25, 2.0, 5.0)
directions = {q: attsvm.solve_svm(slanted, [0], norm=q).direction for q in EXPONENTS}
trained = {}
for q in EXPONENTS:
    optimizer = attsvm.optimizers.mirror_descent(learning_rate=lambda k: 0.1 * (1 + k / 100), p=q)
    trained[q] = attsvm.train(slanted, optimizer=optimizer, steps=20_000)
    error = attsvm.direction_error(trained[q], directions[q])
    print(f"l{q:<5}Att-SVM {directions[q].round(3)}   direction error after 20,000 steps: {error:.1e}")

fig, axis = plt.subplots(figsize=(4.4, 4.0), layout="constrained")
draw_constraints(axis, slanted, [0], (-0.5, 2.0))
angle = np.linspace(0, 2 * np.pi, 400)
circle = np.stack([np.cos(angle), np.sin(angle)])
for (q, direction), colour in zip(directions.items(), ("tab:purple", "k", "tab:red"), strict=True):
    ball = circle * np.linalg.norm(direction, ord=q) / np.linalg.norm(circle, ord=q, axis=0)
    axis.plot(*ball, color=colour, linewidth=0.8, linestyle="--")
    axis.plot(*direction, "*", color=colour, markersize=12, label=rf"$\ell_{{{q:g}}}$ Att-SVM")
axis.set(xlim=(-0.5, 2.0), ylim=(-0.5, 2.0), xlabel="$p_1$", ylabel="$p_2$")
axis.legend(loc="lower right")

# %%
# Each dashed curve is the ball of one norm, enlarged until it touches the shaded region. The point of contact is the
# Att-SVM in that norm.
#
# Queries, keys and matrices
# --------------------------
#
# In self- and cross-attention, the logits are :math:`x_{it}^\top W z_i`, with one query :math:`z_i` for each sequence.
# The only change is that we train a matrix :math:`W`. Its Att-SVM minimises :math:`\Vert W \Vert_F` subject to
# :math:`(x_{i\alpha_i} - x_{it})^\top W z_i \ge 1`. Transformers train two factors of :math:`W = K Q^\top` instead of
# :math:`W` itself. Gradient descent on the factors favours a small *nuclear* norm (the sum of the singular values), and
# therefore a low rank.

matrices = attsvm.datasets.random_problem(6, 8, 10, seed=0)
selected = attsvm.optimal_tokens(matrices)
for norm in ("frobenius", "nuclear"):
    found = attsvm.solve_svm(matrices, selected, norm=norm)
    print(f"{norm:10} value {found.value:.3f}   rank {np.linalg.matrix_rank(found.direction, tol=1e-6)}")

# %%
# What is proved, and what is only measured
# -----------------------------------------
#
# Each prediction has a level of evidence, in the attribute ``standing``. ``proved``: every hypothesis of a theorem was
# checked on the run and holds. ``measured``: runs of this kind reached at least 0.95 of the best margin on average, and
# this run lies within the measured range. ``conjecture``: the run lies outside that range. ``none``: the library
# predicts nothing. ``hypotheses`` lists the hypotheses with their numbers.

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
for options in ({}, {"attention": "factored"}, {"batch_size": 1}, {"penalty": 0.1}):
    prediction = attsvm.predict_direction(problem, attsvm.train(problem, **options))
    print(options, "->", prediction.norm.name, prediction.standing)

# %%
# The first run takes normalised steps. Its weights have reached a cone that such steps never leave:

for hypothesis in attsvm.predict_direction(problem, attsvm.train(problem)).hypotheses:
    print(hypothesis)

# %%
# The theorems say little about how long this takes, and convergence is slow. With steps of constant length, the
# direction error falls like :math:`1/k^2` at best. With plain gradient descent, the norm of :math:`p` grows only like
# :math:`\log k`. The theorems also concern the training data only. They say nothing about how well the layer works on
# new data.
#
# Where to read more
# ------------------
#
# - Tarzanagh, Li, Zhang and Oymak, *Max-Margin Token Selection in Attention Mechanism*, NeurIPS 2023: prompts, locally
#   optimal tokens, joint training with the prediction head.
# - Tarzanagh, Li, Thrampoulidis and Oymak, *Transformers as Support Vector Machines*, 2023: W, and the factors K and Q.
# - Julistiono, Tarzanagh and Azizan, *Optimizing Attention with Mirror Descent*, JMLR 2025: :math:`\ell_p` norms.
#
# The next tutorial repeats these steps on your own data.
