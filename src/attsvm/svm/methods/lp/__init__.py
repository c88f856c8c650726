"""The least entrywise lp norm."""
