"""`python -m subtle`, the same as the command `subtle`."""

import sys

from subtle.cli import main

sys.exit(main())
