"""Models on this machine: where they come from, how they are stored, what their files say.

Counterpart: `web/models/`, the same for pages. Not where models are loaded: `headrace/native.py`.
"""
