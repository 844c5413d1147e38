"""The configuration: parsed, checked as a whole, then frozen. :mod:`outlive_agent.config` is the way in."""
