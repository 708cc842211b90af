"""What an operator does: requeue, discard, bury, replay, pause and resume, each audited."""
