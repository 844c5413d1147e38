"""What all tests share."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and programs inherit that; ours must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
