"""The commands that are no group of their own, one file each, imported when they are used."""
