"""The producing side: routes, preparing, appending, handlers."""
