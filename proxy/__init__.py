"""The egress proxy: everything that does I/O, and the path of a call."""

__version__ = "0.1.0"
