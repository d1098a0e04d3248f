"""`sluicegate doctor`: what is injected, proved on the wire; which clients trust us; which files hold credentials."""
