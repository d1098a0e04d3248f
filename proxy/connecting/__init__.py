"""`sluicegate connect`: a person's consent becomes a record in the store, and nobody sees a token on the way."""
