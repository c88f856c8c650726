"""The solvers of the Att-SVM, one folder per family of norms."""
