"""Functions on which kernel learning can end in a poor optimum, compared with other methods."""
