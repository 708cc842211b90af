"""The audit trail: its chain, what verifies it, and copies outside the database."""
