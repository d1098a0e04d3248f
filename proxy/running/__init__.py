"""`sluicegate run`: a command with a proxy of its own that ends with it."""
