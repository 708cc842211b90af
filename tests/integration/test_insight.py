"""What the insight API tells about events, deliveries, workers and destinations."""
