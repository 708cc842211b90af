"""What a delivery and an append cost in statements and round trips."""
