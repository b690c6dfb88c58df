"""System checks of settings and of the environment."""
