"""
Which tokens are selected, and when?
====================================

We train thirty random problems side by side. Most queries find their optimal token within a thousand steps. Some end at
another, locally optimal token and stay there.
"""

import attsvm

problems = attsvm.datasets.random_problem(6, 8, 10, seed=0, batch=(30,))
run = attsvm.train(problems, steps=5000)
attsvm.plot.selection(problems, run)
