"""
2. Your own data
================

This tutorial takes sequences of different lengths, asks which tokens attention can keep, certifies the answer, trains
an attention layer on them, and saves the results. It also shows the same steps on the command line.
"""

import tempfile
from pathlib import Path

import numpy as np

import attsvm

# %%
# A problem from arrays
# ---------------------
#
# A :class:`attsvm.Problem` holds n sequences of tokens, and whatever else the question needs: labels and a head to
# score tokens, one query for each sequence if a matrix W is to be trained, none if it is a prompt. Lists, NumPy, JAX
# and PyTorch arrays are accepted.
#
# As an example we make ten sequences of 3 to 6 sensor readings. A reading is a vector of five numbers. In each sequence
# one reading carries the label, in its first entry.

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
# :meth:`attsvm.Problem.from_sequences` pads the sequences to one length and remembers in ``mask`` which tokens are
# real. A padded token is never selected, never a constraint, and receives no attention. If your data are padded
# already, pass ``tokens``, shape (n, T, d), and ``mask``, shape (n, T), yourself.

print("tokens", problem.tokens.shape, " mask", problem.mask.shape, " real tokens", int(problem.mask.sum()))
problem.plot()

# %%
# Which tokens can attention keep?
# --------------------------------
#
# The score of a token is its label times the head's output for it. The optimal tokens have the highest scores.

optimal = attsvm.optimal_tokens(problem)
print("optimal tokens:  ", optimal)
print("planted readings:", np.array(places))

# %%
# :func:`attsvm.solve_svm` looks for the smallest prompt that keeps them. Its answer has a *status*, which says what is
# certified of it. Print it before you use the numbers.

solution = attsvm.solve_svm(problem, optimal)
print(solution)

# %%
# ``optimal`` means: the value is between a lower bound from the dual and an upper bound from the primal problem, and
# the two differ by the relative ``gap``. Any selection can be tested, also your own:

first = np.zeros(len(sequences), dtype=int)  # the first token of every sequence
refused = attsvm.solve_svm(problem, first)
print("first tokens:", refused.status, f" bound {refused.bound:.0e}")

# %%
# ``infeasible`` is a result, not an error. ``dual`` holds Farkas multipliers, and ``bound`` is what they prove: every
# prompt that keeps these tokens with a margin of 1, if the differences have length 1, is longer than this. Direction
# and value are NaN. :doc:`All statuses </guide/statuses>` are explained in the guide. For data that no prompt separates
# there is a soft margin, ``slack=C``:

soft = attsvm.solve_svm(problem, first, slack=1.0)
print("with slack:", soft.status, " norm", round(soft.value, 3))

# %%
# An invalid argument, in contrast, raises an error that says what was expected.

try:
    attsvm.solve_svm(problem, [9] * 10)
except attsvm.ProblemError as error:
    print("ProblemError:", error)

# %%
# Training
# --------
#
# :func:`attsvm.train` trains the prompt. ``status`` says how the run ended; ``finished`` means that all steps were
# made.

run = attsvm.train(problem, steps=20_000)
print(run)
print("keeps the optimal tokens:", bool((run.selected == optimal).all()))
print("kind of convergence:     ", attsvm.classify(problem, run).kind)

# %%
# The prediction is the Att-SVM of the tokens that the run selects, in the norm of its optimiser. Here the run selects
# the optimal tokens, so it is the solution above.

predicted = attsvm.predict_direction(problem, run)
print(predicted.norm.name, predicted.standing)
print(f"direction error {attsvm.direction_error(run, predicted):.1e}")
print(f"margin ratio    {attsvm.margin_ratio(problem, run):.4f}")
axes = run.plot(problem)

# %%
# The support tokens are the tokens with the smallest margin. The others could be removed without changing the
# direction.

attsvm.plot.margins(problem, run)
print("support tokens:", int(predicted.solution.support.sum()), "of", int(problem.mask.sum()) - len(sequences))

# %%
# Saving
# ------
#
# Problems and all results have ``save`` and ``load``. The files are ``.npz`` archives without pickle, and say which
# version wrote them. :doc:`The guide </guide/results>` links the schema, which describes each field.

folder = Path(tempfile.mkdtemp())
problem.save(folder / "my_problem.npz")
run.save(folder / "run.npz")
again = attsvm.Run.load(folder / "run.npz")
print("equal weights:", bool((again.weights == run.weights).all()))

# %%
# A run that was loaded can be continued: ``init=again`` makes further steps. ``to_frame()`` gives the history as a
# pandas table.

longer = attsvm.train(problem, init=again, steps=10_000)
print("steps:", run.step, "and", longer.step)
table = run.to_frame()[["loss", "median_probability"]]
print(table.iloc[:: len(table) // 5])

# %%
# On the command line
# -------------------
#
# The same from a shell. A problem file needs nothing but an archive with an array ``tokens`` (n, T, d), and optionally
# ``labels``, ``head``, ``queries``, ``keys``, ``mask`` and ``query_mask``; ``numpy.savez`` writes one, too.
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
