"""Sluicegate beside what a user would pick instead, on one machine in one run. Start it with `make bench`."""
