"""Prediction heads, one file each: from the pooled token o to the output of a query.

====================== ============================================================================
head                   output
====================== ============================================================================
:class:`Linear`        v'o, with v the problem's head; one row of v for each class
:class:`Quadratic`     v'o − λ‖o‖²
:class:`MLP`           u'σ(H o + b), one hidden layer with ReLU or GELU
:class:`ValueMLP`      u'σ(H V'o + b), a value matrix before the hidden layer: a one-layer transformer
:class:`FunctionHead`  any function of o and its parameters, written in JAX
====================== ============================================================================

A new head is a subclass of :class:`Head`, in this package or outside it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
