"""Others who do what Postlude does, each with the interface that it recommends."""
