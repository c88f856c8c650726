"""Independent answers that tests compare with."""
