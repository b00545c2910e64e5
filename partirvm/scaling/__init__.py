"""Column maps, which convert features and targets from their units to a model's units."""
