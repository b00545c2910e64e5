"""What people see: progress, tables, summaries, pictures. Reads only."""
