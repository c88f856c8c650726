"""attsvm: what training does to softmax attention.

The Att-SVM that an attention layer converges to, solved with a certificate, trained towards to the limit, and measured.
"""

from importlib.metadata import version

__version__ = version("attsvm")
