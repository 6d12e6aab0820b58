"""`python3 -m bench`: the measurements of `decode.py`."""

import sys

from bench.decode import main

sys.exit(main())
