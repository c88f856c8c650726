"""What ``attsvm.fit`` and the commands ``fit``, ``fit-text`` and ``next-token`` do: data, training, result."""
