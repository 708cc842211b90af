"""Sagas as users declare them: typed events, or plain durable functions; both compile to one definition."""
