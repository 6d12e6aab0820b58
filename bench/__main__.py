"""`python3 -m bench [NAME]`: a measurement, one of `NAMES`; `decode` unless named."""

import importlib
import sys

NAMES = ("backend-ops", "decode", "gpu", "scheduler", "store", "streams")

arguments = sys.argv[1:]
name = arguments.pop(0) if arguments and arguments[0] in NAMES else "decode"
# Imported when wanted: not all of them need a browser's package.
sys.exit(importlib.import_module(f"bench.{name.replace('-', '_')}").main(arguments))
