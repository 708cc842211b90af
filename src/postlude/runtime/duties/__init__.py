"""Maintenance duties, one a file. A duty is owned like a lane, so one worker at a time does it."""
