"""The least value of any norm, by its prox or by its steepest direction."""
