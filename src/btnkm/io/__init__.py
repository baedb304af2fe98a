"""Files: models as .btn, and files that are written whole or not at all."""
