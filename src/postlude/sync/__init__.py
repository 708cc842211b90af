"""The same names for code without an event loop."""
