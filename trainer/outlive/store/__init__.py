"""Checkpoints in an object store: keys, manifests, lives, commit, choice, retention. Knows no training."""
