"""Pure arithmetic: memory and cost formulas, and the plan made of them."""
