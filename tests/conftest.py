"""What all tests share."""

import signal

# Background jobs inherit an ignored Ctrl-C, and those of nohup an ignored SIGHUP. Ours must hear them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
