"""``python -m partirvm`` runs the command ``partirvm``."""

import sys

from partirvm.cli import main

sys.exit(main())
