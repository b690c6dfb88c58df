"""Measuring reviews (`manage.py evaluate`): a corpus, an oracle, recorded answers, real models."""
