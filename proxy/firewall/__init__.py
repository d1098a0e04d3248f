"""The packet filter that leaves the proxy as a pod's only way out."""
