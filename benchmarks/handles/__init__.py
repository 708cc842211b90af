"""How the users of each kind of handle write a transaction: once with our append, once with their own outbox table."""
