"""Output for users: progress, tables, summaries, pictures. Reads only."""
