"""Imported by `stacks.py`, whose stack at that moment has the frames of the import system."""
from stacks import checkpoint

checkpoint(f"top level of {__name__}")


def function():
    checkpoint("function of another module")
