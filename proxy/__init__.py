"""The egress proxy: everything that does I/O, and the path of a call."""

import os

# pydantic looks for plugins in every installed distribution: memory and start-up time for something we do not have.
_QUICKER = {"PYDANTIC_DISABLE_PLUGINS": "__all__"}
OWN_VARIABLES = frozenset(_QUICKER.keys() - os.environ.keys())
"""Variables of the environment that are set for this process alone: a command that it starts does not get them."""
os.environ.update({name: _QUICKER[name] for name in OWN_VARIABLES})

__version__ = "0.1.0"
