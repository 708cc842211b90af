"""What is measured. A scenario is an async generator that gives (ours, theirs) once for each repeat."""
