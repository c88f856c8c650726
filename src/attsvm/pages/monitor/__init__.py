"""The page of what an ``AttentionMonitor`` recorded."""
