"""What the `dev` script is made of: standard library only, shared with the tests."""
