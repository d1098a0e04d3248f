"""Tools: operations of the catalogue that are called by name and arguments, on the one pipeline."""
