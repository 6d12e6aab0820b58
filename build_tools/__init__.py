"""The build side of Headrace: from a fresh clone to artifacts, a native library and a test run.

Counterpart: `headrace/`, the package these tools build for; `serve.py`, `tests/` and `bench/` use both.
Not part of what users install, and never an importer of `headrace`. Until `.venv` exists only the standard
library may be imported here.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said before a newer syntax makes it a traceback
    sys.exit("error: Headrace needs Python 3.11 or newer; this is {}.{}".format(*sys.version_info[:2]))
