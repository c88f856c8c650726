"""
Which tokens are selected, and when
===================================

Thirty random problems side by side. Most queries find their optimal token within a thousand steps. Some end at
another one that is locally optimal, and stay there.
"""

import attsvm

problems = attsvm.datasets.random_problem(6, 8, 10, seed=0, batch=(30,))
run = attsvm.train(problems, steps=5000)
attsvm.plot.selection(problems, run)
