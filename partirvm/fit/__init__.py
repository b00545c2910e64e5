"""Run the fit of a spec: the driver of a strategy, local residuals, comparisons and remarks."""
