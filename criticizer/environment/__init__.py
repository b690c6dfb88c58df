"""Environment variables that configure the service: `.env`, reading, validation, reference.

A checkout keeps its `.env` and `var` beside `manage.py`; an installed package uses the working
directory.
"""

from pathlib import Path

CODE_DIR = Path(__file__).resolve().parents[2]
IS_CHECKOUT = (CODE_DIR / "manage.py").is_file() and (CODE_DIR / "templates").is_dir()
WORK_DIR = CODE_DIR if IS_CHECKOUT else Path.cwd()
