"""Maps from logits to attention, one file each.

================= ===================================== =================================================
map               attention                             exactly one-hot
================= ===================================== =================================================
``"softmax"``     exp(s_t) / Σ_u exp(s_u)               never
``"sparsemax"``   [s_t − τ]_+                           from a margin of 1 on
``"entmax1.5"``   [s_t/2 − τ]_+²                        from a margin of 2 on
``"sigmoid"``     1/(1 + exp(−s_t))                     never; it does not add up to 1
================= ===================================== =================================================

A new map is a subclass of :class:`AttentionMap` in a file that registers it, in this package or outside it.
"""
