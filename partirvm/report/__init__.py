"""Output for users: progress, tables, summaries and pictures. This package writes no jobs and no
data."""
