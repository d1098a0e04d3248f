"""OAuth grants as generators: each yields a TokenRequest, is sent the TokenReply, and returns what was Issued.

No I/O and no clock here: `now` and nonces are arguments, so that every grant can be tested from a table. Any of them
raises TokenRefused when the endpoint's answer is no token.
"""
