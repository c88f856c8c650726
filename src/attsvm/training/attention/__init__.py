"""Attention layers: from parameters to logits."""
