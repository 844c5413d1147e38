"""What the guard runs: a child process or a systemd unit."""
