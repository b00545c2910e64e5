"""Run the fit of a spec: the driver of a strategy, local residuals, comparisons and remarks."""

from partirvm.fit.driver import Driver, MemoryJournal, Outcome, Watcher

__all__ = [
    "Driver",
    "MemoryJournal",
    "Outcome",
    "Watcher",
]
