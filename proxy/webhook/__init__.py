"""The admission webhook: puts the proxy beside pods, and refuses pods and policies that could get round it."""
