"""How long the rig waits before it gives up."""

PATIENCE = 4.0
"""So many times what a test allows: a busy machine is no failure, and what comes true ends the wait."""
