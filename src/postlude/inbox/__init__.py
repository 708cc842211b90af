"""The inbox: what arrives more than once has its effect once."""
