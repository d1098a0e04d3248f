"""The provider catalogue: which provider and which of its operations a call is. Pure look-up over providers/*.yaml."""

from proxy.catalog.lookup import Catalog
from proxy.catalog.operations import Operation
from proxy.catalog.provider import Provider

__all__ = ["Catalog", "Operation", "Provider"]
