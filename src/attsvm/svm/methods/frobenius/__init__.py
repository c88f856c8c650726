"""The least Frobenius norm, which is the l2 norm for a prompt."""
