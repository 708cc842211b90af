"""Stores, one folder a dialect."""
