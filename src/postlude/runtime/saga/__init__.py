"""The runs of sagas: their work, what follows from it, and the events that reach them."""
