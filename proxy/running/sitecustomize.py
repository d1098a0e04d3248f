"""Runs at the start of each Python that a command behind `sluicegate run` starts, from the folder of its trust files.

Some SDKs trust the roots in their own wheel and no variable changes that. Once such a module is imported, it is told
of the bundle instead. Nothing else is touched, and nothing is imported that the program does not import. Standard
library only: this is not our interpreter.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType

FOLDER = os.path.dirname(os.path.abspath(__file__))
BUNDLE = os.path.join(FOLDER, os.pardir, "bundle.pem")
ATTRIBUTES = {"stripe": "ca_bundle_path"}
"""Modules, and where each keeps the path of its roots."""


class Told:
    """A finder that leaves the finding to the others and sets the path of the roots after the module has run."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "importlib.machinery.ModuleSpec | None":
        """See importlib.abc.MetaPathFinder."""
        if name not in ATTRIBUTES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            setattr(module, ATTRIBUTES[name], os.path.normpath(BUNDLE))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _run_the_one_that_stood_here() -> None:
    """The environment's own sitecustomize, which ours comes before, is run as if ours were not there."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", entries[entries.index(FOLDER) + 1 :])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = ModuleType("sitecustomize")
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        spec.loader.exec_module(module)


_run_the_one_that_stood_here()  # first: it may be the one of a `run` around this one, whose bundle is not ours
sys.meta_path.insert(0, Told)
