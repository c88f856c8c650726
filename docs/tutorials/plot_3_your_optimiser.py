"""
3. Your own optimiser: which margin does it maximise?
======================================================

Gradient descent converges to the Att-SVM in the Frobenius norm, mirror descent to the one in an lp norm. For most
optimisers no theorem says which norm it is. This tutorial measures it: for an optimiser of optax, for one of PyTorch,
and for one that is written in ten lines.
"""

import textwrap

import optax
import torch

import attsvm

# %%
# The measure
# -----------
#
# Take the weights W that an optimiser ends at, and the tokens that they select. The *margin ratio* in a norm N is the
# margin of W, divided by N(W), over the best such margin of any weights. It is at most 1. If the optimiser maximises
# the margin in the norm N, its ratio there is close to 1, and its ratios in other norms are smaller.
#
# :func:`attsvm.margin_profile` trains several problems with learning rates that it finds, and reports the ratios
# and a verdict. Its defaults are eight problems (up to twenty, if these leave a doubt), thirteen norms and up to 20,000
# steps. Small sizes keep this page quick.

problems = attsvm.datasets.random_problem(4, 5, 6, batch=(3,))
norms = ["l1", "frobenius", "linf", "spectral", "linf,2"]

# %%
# An optimiser of optax
# ---------------------
#
# Give a function of a learning rate. The rate is found, such that a step changes a logit by about 0.3 and less later.

profile = attsvm.margin_profile(optax.sgd, problems, norms=norms, steps=2000)
print(textwrap.fill(profile.reason, 70))
profile.plot()

# %%
# Each row of the figure is a schedule, and the frame marks the largest ratio of a row. The profile ends with the first
# schedule that gives the answer: gradient descent has the largest ratio in the Frobenius norm.
#
# Note the last sentence of the reason. The runs of the figure use the gradient *divided by its norm*. When the
# softmax saturates, the gradient shrinks exponentially, and an optimiser with steps proportional to it practically
# stops. One more run uses the gradient itself. ``underflows`` says that this run ended elsewhere, as happens in real
# training:

print("the raw gradient becomes too small:", profile.underflows)

# %%
# An optimiser of PyTorch
# -----------------------
#
# Give the class. It is stepped on the exact gradient, in float64. With a learning rate, the profile multiplies it by
# four schedules instead of searching one.

adam = attsvm.margin_profile(torch.optim.Adam, problems, norms=norms, steps=2000, learning_rate=1e-2)
print(adam.verdict)
print(textwrap.fill(adam.reason, 70))
adam.plot()

# %%
# **Inconclusive** is an answer, too, and ``reason`` says what is missing. The usual cases:
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
# Here the run is too short. Adam changes every entry by about the same amount, so it needs many steps before small
# entries and large ones are balanced. The trend is visible: the ratio in the maximum norm ``linf`` grows with the
# number of steps, and that in the Frobenius norm does not.

linf, frobenius = norms.index("linf"), norms.index("frobenius")
best = adam.schedules.index("long decaying")
for name, norm in (("linf", linf), ("frobenius", frobenius)):
    half, whole = adam.half_ratios[best, :, norm].mean(), adam.ratios[best, :, norm].mean()
    print(f"{name:10} after 1,000 steps {half:.3f}, after 2,000 steps {whole:.3f}")

# %%
# An optimiser in ten lines
# -------------------------
#
# Any subclass of ``torch.optim.Optimizer`` or any optax transformation can be profiled. This one divides each row of
# the gradient by its length, so that all rows of W move by the same distance.


class UnitRows(torch.optim.Optimizer):
    """Steps of length lr of each row."""

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
# What do we expect? The step is the steepest one among all W whose longest row has length at most lr. Steepest
# descent in a norm is expected to maximise the margin in that norm: the length of the longest row, ``"linf,2"``. The
# measurement agrees.
#
# That is a measurement on a few problems and no proof. A verdict also depends on the list: the answer is the closest of
# the norms that were compared.
#
# Use the direction
# -----------------
#
# Once the norm is known, :func:`attsvm.solve_svm` gives the direction to which training should converge on your data.
# The library contains this optimiser, too, as :func:`attsvm.optimizers.row_descent`. We compare the margin of a run
# with the largest one in that norm.

problem = problems[0]
run = attsvm.train(problem, optimizer=attsvm.optimizers.row_descent(0.02), steps=5000)
print(f"margin ratio in linf,2: {attsvm.margin_ratio(problem, run, norm='linf,2'):.3f}")

# %%
# From a shell, ``attsvm profile torch.optim.Adam --out adam`` does the same at full size and writes a page.
# :doc:`/guide/margin_profile` has the rules of the verdict, and :doc:`/notes/optimizer_norms` what was
# measured for many optimisers. ``attention="factored"`` profiles the training of keys and queries, where other norms
# appear.
