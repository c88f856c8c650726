"""The constraints A(W) >= b of an Att-SVM, and products with A and its adjoint A*."""
