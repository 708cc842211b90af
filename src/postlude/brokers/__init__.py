"""Brokers, each by itself."""
