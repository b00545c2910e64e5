"""The definition of a fit: its problem and options, its likelihood's interface, and its history
lines."""
