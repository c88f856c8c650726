"""
Which norm's margin does an optimiser maximise?
===============================================

``margin_profile`` trains on random problems with an optimiser, and compares the margins with the best ones in several
norms. If the ratio is near 1 in one norm and smaller in the others, the optimiser maximises the margin in that norm.
"""

import attsvm

profile = attsvm.margin_profile(
    attsvm.optimizers.normalized_gradient_descent, seeds=2, steps=2000, norms=["l1", "l1.5", "frobenius", "l3", "linf"]
)
print(profile.verdict)
profile.plot()
