"""Kernels that learn themselves, on the experiments of papers and on public sets."""
