"""The contracts between the engine and the world, each written on its Protocol."""
