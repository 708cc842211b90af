"""What every benchmark shares: sides that take turns, costs, a database of its own, one form of report."""
