"""The solvers of the Att-SVM, one folder a family of norms."""
