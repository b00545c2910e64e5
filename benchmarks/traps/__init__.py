"""Functions on which kernel learning can end in a poor optimum, beside other methods."""
