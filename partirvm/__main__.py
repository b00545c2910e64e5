"""``python -m partirvm`` is the command line."""

from partirvm.cli import main

main()
