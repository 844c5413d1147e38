"""The agent: guards a training run on one machine, and the command line over it. Starts without torch."""
