"""Maps of columns: features and targets in their units to those of a model."""
