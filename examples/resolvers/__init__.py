"""Resolvers to begin with: copy the one that is like your vendor, and test yours with `ResolverContract`."""
