"""The torch side: what a training script imports."""
