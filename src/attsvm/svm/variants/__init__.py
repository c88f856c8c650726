"""Soft margins, sets of tokens with their finite part, and the prediction head."""
