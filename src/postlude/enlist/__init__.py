"""Joining the caller's transaction, one small adapter for each kind of handle."""
