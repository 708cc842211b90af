"""Suites that adapters pass: subclass one, give its fixtures."""
