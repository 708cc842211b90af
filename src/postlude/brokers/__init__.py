"""Brokers, one file each."""
