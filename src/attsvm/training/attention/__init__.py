"""Parametrizations of the logits, one file each.

They are W, the factors (K, Q), plain or rotated, a gain and W, a prompt p, or a prompt with keys (W, p). A new one is a
subclass of :class:`Attention` in a file of this package that registers it.
"""
