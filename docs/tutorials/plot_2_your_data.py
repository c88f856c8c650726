"""
2. Your own data
================

This tutorial starts from sequences of different lengths. It finds out which tokens attention can keep, certifies the
answer, trains an attention layer, and saves the results. The last section repeats these steps on the command line.
"""

import tempfile
from pathlib import Path

import numpy as np

import attsvm

# %%
# A problem from arrays
# ---------------------
#
# A :class:`attsvm.Problem` holds n sequences of tokens. Add labels and a prediction head to score the tokens. Add one
# query per sequence to train a matrix W, or none to train a prompt. Lists and NumPy, JAX and PyTorch arrays all work.
#
# As an example, we generate ten sequences of 3 to 6 sensor readings. A reading is a vector of five numbers. In each
# sequence, the first entry of one reading carries the label.

generator = np.random.default_rng(7)
lengths = generator.integers(3, 7, size=10)
labels = np.where(np.arange(10) % 2 == 0, 1, -1)
sequences = [generator.normal(scale=0.5, size=(length, 5)) for length in lengths]
places = [generator.integers(length) for length in lengths]
for sequence, place, label in zip(sequences, places, labels, strict=True):
    sequence[place, :2] = [1.5 * label, 1.5]  # the second entry says: look here

head = np.array([1.0, 0, 0, 0, 0])
problem = attsvm.Problem.from_sequences(sequences, labels=labels, head=head)
print(problem)

# %%
# :meth:`attsvm.Problem.from_sequences` pads the sequences to one length and records the real tokens in ``mask``.
# Padding is never selected, adds no constraint and receives no attention. If your data are already padded, pass
# ``tokens`` of shape (n, T, d) and ``mask`` of shape (n, T) to ``Problem``.

print("tokens", problem.tokens.shape, " mask", problem.mask.shape, " real tokens", int(problem.mask.sum()))
problem.plot()

# %%
# Which tokens can attention keep?
# --------------------------------
#
# The score of a token is the label times the output of the prediction head for this token. The optimal tokens have the
# highest scores.

optimal = attsvm.optimal_tokens(problem)
print("optimal tokens:  ", optimal)
print("planted readings:", np.array(places))

# %%
# :func:`attsvm.solve_svm` looks for the smallest prompt that keeps them. The *status* of the solution says what is
# certified. Check it before you use the numbers.

solution = attsvm.solve_svm(problem, optimal)
print(solution)

# %%
# ``optimal`` means that the value lies between a lower bound from the dual problem and an upper bound from the primal
# problem, which differ by the relative ``gap``. You can test any selection:

first = np.zeros(len(sequences), dtype=int)  # the first token of every sequence
refused = attsvm.solve_svm(problem, first)
print("first tokens:", refused.status, f" bound {refused.bound:.0e}")

# %%
# ``infeasible`` is a result, not an error. ``dual`` contains the Farkas multipliers. They prove that every prompt that
# keeps these tokens with a margin of 1 is longer than ``bound`` (with differences scaled to length 1). Direction and
# value are NaN. The guide explains :doc:`all statuses </guide/statuses>`. If no prompt separates your data, use a soft
# margin, ``slack=C``:

soft = attsvm.solve_svm(problem, first, slack=1.0)
print("with slack:", soft.status, " norm", round(soft.value, 3))

# %%
# In contrast, an invalid argument raises an error that says what was expected.

try:
    attsvm.solve_svm(problem, [9] * 10)
except attsvm.ProblemError as error:
    print("ProblemError:", error)

# %%
# Training
# --------
#
# :func:`attsvm.train` trains the prompt. ``status`` says how the run ended; ``finished`` means that it took all its
# steps.

run = attsvm.train(problem, steps=20_000)
print(run)
print("keeps the optimal tokens:", bool((run.selected == optimal).all()))
print("kind of convergence:     ", attsvm.classify(problem, run).kind)

# %%
# The predicted direction is the Att-SVM of the tokens that the run selects, in the norm of its optimiser. This run
# selects the optimal tokens, so the prediction is the solution above.

predicted = attsvm.predict_direction(problem, run)
print(predicted.norm.name, predicted.standing)
print(f"direction error {attsvm.direction_error(run, predicted):.1e}")
print(f"margin ratio    {attsvm.margin_ratio(problem, run):.4f}")
axes = run.plot(problem)

# %%
# The support tokens have the smallest margin. You could remove all other tokens without changing the direction.

attsvm.plot.margins(problem, run)
print("support tokens:", int(predicted.solution.support.sum()), "of", int(problem.mask.sum()) - len(sequences))

# %%
# Saving
# ------
#
# Problems and all results have ``save`` and ``load``. The files are ``.npz`` archives without pickle, and record the
# version that wrote them. :doc:`The guide </guide/results>` links to the schema, which describes each field.

folder = Path(tempfile.mkdtemp())
problem.save(folder / "my_problem.npz")
run.save(folder / "run.npz")
again = attsvm.Run.load(folder / "run.npz")
print("equal weights:", bool((again.weights == run.weights).all()))

# %%
# ``init=again`` continues the loaded run. ``to_frame()`` returns the history as a pandas table.

longer = attsvm.train(problem, init=again, steps=10_000)
print("steps:", run.step, "and", longer.step)
table = run.to_frame()[["loss", "median_probability"]]
print(table.iloc[:: len(table) // 5])

# %%
# On the command line
# -------------------
#
# You can do the same from a shell. A problem file is an archive with an array ``tokens`` (n, T, d), and optionally
# ``labels``, ``head``, ``queries``, ``keys``, ``mask`` and ``query_mask``. ``numpy.savez`` can write one too.
#
# .. code-block:: sh
#
#    attsvm problem my_problem.npz                 # describe it
#    attsvm solve my_problem.npz --selected optimal --out solution.npz
#    attsvm train my_problem.npz --steps 20000 --out run.npz
#
# This is what the first two print:

import subprocess
import sys

for arguments in (["problem", "my_problem.npz"], ["solve", "my_problem.npz", "--selected", "optimal"]):
    print("$ attsvm", *arguments)
    command = [sys.executable, "-m", "attsvm", *arguments]
    print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)
