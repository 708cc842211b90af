"""`postlude demo`: a small shop for a few seconds."""
