"""Output for users: progress, tables, summaries and charts. This package never writes jobs or
data."""
