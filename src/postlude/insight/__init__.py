"""One read side and one set of audited actions for CLI, console and health."""
