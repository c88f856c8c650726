"""The least norm of W = KQ' that norms of the factors K and Q induce: programs over factors, one by one."""
