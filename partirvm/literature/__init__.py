"""Systems of the sources beyond the main path, for comparisons with the literature. No other part imports them.

Each module stands on public names and on the seams that it states. ``docs`` and ``benchmarks/LITERATURE.md`` have what
came of them.
"""
