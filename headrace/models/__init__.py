"""The model store: gigabytes arrive once, survive, and are verified. Counterpart: `web/models/`.

Told in ARCHITECTURE.md, "The model store". Not where models are run: `headrace.Engine` takes the paths that
`ModelStore.open` gives.
"""

from headrace.models.catalog import Repaired
from headrace.models.manifest import HashedFile, Manifest, Origin
from headrace.models.progress import Progress
from headrace.models.quota import Usage
from headrace.models.store import ModelStore, OpenModel, StoredModel

__all__ = [
    "HashedFile",
    "Manifest",
    "ModelStore",
    "OpenModel",
    "Origin",
    "Progress",
    "Repaired",
    "StoredModel",
    "Usage",
]
