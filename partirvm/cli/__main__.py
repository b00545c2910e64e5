"""``python -m partirvm.cli`` is ``partirvm``."""

import sys

from partirvm.cli import main

sys.exit(main())
