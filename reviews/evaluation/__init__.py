"""Measures reviews (`manage.py evaluate`): by an oracle, recorded answers or real models."""
