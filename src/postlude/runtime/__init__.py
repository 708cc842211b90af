"""The worker: lanes, relays, duties, shutdown."""
