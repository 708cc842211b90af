"""Brokers, and their client libraries as a good user would use them: the other side of `dev bench broker`."""
