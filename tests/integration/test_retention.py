"""Partitions made ahead, retired and dropped, and what retention keeps."""
