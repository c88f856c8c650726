"""Losses, one file each.

=================== ============================ =============================================================
name                of                           formula
=================== ============================ =============================================================
``"logistic"``      the margin m = y f           log(1 + e^−m)
``"exponential"``   the margin                   e^−m
``"linear"``        the margin                   −m; also under the name ``"correlation"``
``"cross_entropy"`` class scores f               −log softmax(f)_y
``"token"``         shares f of the attention    −log f_y
=================== ============================ =============================================================

A loss returns the logarithm of its slope, so that training continues where the slope underflows. A new loss of the
margin is a :class:`Loss`; a plain function of the margin also works, but its slope can underflow. Other losses derive
from :class:`OutputLoss`.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = ("EXPONENTIAL", "LINEAR", "LOGISTIC")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
