"""``python -m partirvm`` is ``partirvm``."""

import sys

from partirvm.cli import main

sys.exit(main())
