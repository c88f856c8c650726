"""The least nuclear and spectral norm."""
