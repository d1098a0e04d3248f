"""The egress proxy: everything that does I/O, and the path of a call."""

import os

# pydantic looks for plugins in every installed distribution: memory and start-up time for something we do not have.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

__version__ = "0.1.0"
