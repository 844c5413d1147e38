"""Metadata servers to rehearse with: what each provider answers, over time, and how it fails."""
