"""What was sent under which Idempotency-Key, kept durably: a write is not sent twice, whatever dies in between."""
