"""Data subjects in our own tables: sealing and its keys, rotation, shredding, redaction."""
