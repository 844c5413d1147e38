"""The memory trainer and agent both hold, and what they say to each other (docs/PROTOCOL.md)."""
