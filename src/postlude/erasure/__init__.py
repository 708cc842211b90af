"""Erasing and rectifying data subjects, here and everywhere else."""
