"""Calls to foreign systems: who can be called, and how."""
