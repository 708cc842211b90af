"""Sagas as pure decisions: what a saga is, where one stands, what can reach it, and what follows."""
