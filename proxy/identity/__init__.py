"""Who is calling: a chain of identifiers for each listener turns what a call presents into a Caller."""
