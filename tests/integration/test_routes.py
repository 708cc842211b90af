"""Routes in the app, and events put in by raw SQL that a worker expands."""
