"""`python3 -m headrace`, the same as the `headrace` command in `cli.py`."""

import sys

from headrace.cli import main

sys.exit(main())
