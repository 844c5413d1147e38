"""The text to paste when a machine is created."""
