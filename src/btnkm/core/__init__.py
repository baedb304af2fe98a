"""The pure core: arrays and frozen dataclasses in, new ones out."""
