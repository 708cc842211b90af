"""Where transactions come from, and what commits with them."""
