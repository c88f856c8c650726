"""scikit-learn's data set of handwritten digits, in a separate module that is loaded on first use.

Importing scikit-learn takes a second. A lazy module for ``sklearn`` itself would make Python load the submodule that is
imported next twice, with classes that differ from those of the first copy.
"""

from sklearn.datasets import load_digits as load_digits
