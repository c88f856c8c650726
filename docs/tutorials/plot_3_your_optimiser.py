"""
3. Your own optimiser: which margin does it maximise?
======================================================

Gradient descent converges to the Att-SVM in the Frobenius norm, and mirror descent to the Att-SVM in an lp norm. For
most optimisers, no theorem names the norm. This tutorial measures it for an optimiser from optax, one from PyTorch, and
one that we write in ten lines.
"""

import textwrap

import optax
import torch

import attsvm

# %%
# The measure
# -----------
#
# Take the final weights W of an optimiser, and the tokens that they select. Normalise the margin of W by N(W), for a
# norm N. The *margin ratio* in N divides this by the best normalised margin of any weights, so it is at most 1. If the
# optimiser maximises the margin in the norm N, its ratio in N is close to 1, and its ratios in other norms are smaller.
#
# :func:`attsvm.margin_profile` finds learning rates, trains on several problems, and reports the ratios and a verdict.
# By default it uses eight problems (up to twenty if the result is unclear), thirteen norms and up to 20,000 steps. This
# page uses smaller sizes to save time.

problems = attsvm.datasets.random_problem(4, 5, 6, batch=(3,))
norms = ["l1", "frobenius", "linf", "spectral", "linf,2"]

# %%
# An optimiser from optax
# -----------------------
#
# Pass a function of a learning rate. The profile chooses the rate so that a step changes a logit by about 0.3 at first,
# and by less later.

profile = attsvm.margin_profile(optax.sgd, problems, norms=norms, steps=2000)
print(textwrap.fill(profile.reason, 70))
profile.plot()

# %%
# Each row of the figure is a schedule, and a frame marks the largest ratio in each row. The profile stops at the first
# schedule that gives an answer. For gradient descent, the ratio is largest in the Frobenius norm.
#
# Note the last sentence of the reason. The runs in the figure use the gradient *divided by its norm*. When the softmax
# saturates, the gradient shrinks exponentially, and an optimiser with proportional steps practically stops. One more
# run uses the gradient itself. ``underflows`` says that this run ended elsewhere, as happens in real training:

print("the raw gradient becomes too small:", profile.underflows)

# %%
# An optimiser from PyTorch
# -------------------------
#
# Pass the class. It receives the exact gradient, in float64. If you give a learning rate, the profile multiplies it by
# four schedules instead of searching for one.

adam = attsvm.margin_profile(torch.optim.Adam, problems, norms=norms, steps=2000, learning_rate=1e-2)
print(adam.verdict)
print(textwrap.fill(adam.reason, 70))
adam.plot()

# %%
# **Inconclusive** is an answer too, and ``reason`` says what is missing. The usual cases are:
#
# ================================= ======================================================================
# reason                            what to do
# ================================= ======================================================================
# a ratio is still rising           more steps, or longer ones
# the steps are too long            a smaller learning rate: each step changes some logit by more than 1
# the attention is not saturated    more steps
# weight decay keeps weights small  profile the optimiser without weight decay
# none of these norms               add the norm that you suspect, ``norms=[...]``
# ================================= ======================================================================
#
# Here the run is too short. Adam changes every entry by about the same amount, so it needs many steps to balance small
# and large entries. The trend is visible: with more steps, the ratio in the maximum norm ``linf`` grows, while the
# ratio in the Frobenius norm does not.

linf, frobenius = norms.index("linf"), norms.index("frobenius")
best = adam.schedules.index("long decaying")
for name, norm in (("linf", linf), ("frobenius", frobenius)):
    half, whole = adam.half_ratios[best, :, norm].mean(), adam.ratios[best, :, norm].mean()
    print(f"{name:10} after 1,000 steps {half:.3f}, after 2,000 steps {whole:.3f}")

# %%
# An optimiser in ten lines
# -------------------------
#
# You can profile any subclass of ``torch.optim.Optimizer`` and any optax transformation. This one divides each row of
# the gradient by its length, so all rows of W move by the same distance.


class UnitRows(torch.optim.Optimizer):
    """Move each row by a step of length lr."""

    def __init__(self, params, lr=0.02):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Subtract each row of the gradient, divided by its length."""
        for group in self.param_groups:
            for weight in group["params"]:
                weight -= group["lr"] * weight.grad / weight.grad.norm(dim=-1, keepdim=True)


rows = attsvm.margin_profile(UnitRows, problems, norms=norms, steps=2000)
print(textwrap.fill(rows.reason, 70))
rows.plot()

# %%
# What do we expect? Among all steps whose longest row has length at most lr, this one is the steepest. We expect
# steepest descent in a norm to maximise the margin in that norm, here the length of the longest row, ``"linf,2"``. The
# measurement agrees.
#
# This is a measurement on a few problems, not a proof. The verdict also depends on the list of norms: it names the
# closest of those compared.
#
# Use the direction
# -----------------
#
# Once you know the norm, :func:`attsvm.solve_svm` gives the direction to which training should converge on your data.
# The library contains this optimiser as :func:`attsvm.optimizers.row_descent`. We compare the margin of a run with the
# largest possible margin in that norm.

problem = problems[0]
run = attsvm.train(problem, optimizer=attsvm.optimizers.row_descent(0.02), steps=5000)
print(f"margin ratio in linf,2: {attsvm.margin_ratio(problem, run, norm='linf,2'):.3f}")

# %%
# From a shell, ``attsvm profile torch.optim.Adam --out adam`` runs the profile at full size and writes a page.
# :doc:`/guide/margin_profile` gives the rules for the verdict, and :doc:`/notes/optimizer_norms` the results for many
# optimisers. ``attention="factored"`` profiles the training of keys and queries, where other norms appear.
