"""Keeps one user from the clouds' metadata servers, which would tell them the user data with its keys.

By the kernel's routing rules, for TCP only: some clouds' name server has the same address. It holds for the
whole user, also while packages are installed. ``IPAddressDeny=`` in the unit says the same for the service
where the kernel can do that.
"""

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Sequence

from outlive_agent.journal import Journal

ADDRESSES = {
    "-4": ("169.254.169.254", "100.100.100.200", "100.96.0.96", "169.254.0.23", "169.254.42.42"),
    "-6": ("fd00:ec2::254", "fd20:ce::254"),
}
PRIORITY = "90"
"""Before the rules that make routing work (32766, 32767), and those that clouds' own agents add."""
TCP = "6"  # by number: a small image has no /etc/protocols to look the name up
_IP = ("/usr/bin/env", "PATH=/usr/sbin:/sbin:/usr/bin:/bin", "ip")


def raise_for(uid: int) -> dict[str, str]:
    """Make sure that ``uid`` can't connect there. Returns the addresses that stay open, and why."""
    left_open = {}
    for family, addresses in ADDRESSES.items():
        listed = _ip(family, "rule", "show").stdout
        for address in addresses:
            if re.search(rf"to {re.escape(address)} .*uidrange {uid}-{uid} .*prohibit", listed):
                continue
            rule = (
                "to",
                address,
                "uidrange",
                f"{uid}-{uid}",
                "ipproto",
                TCP,
                "priority",
                PRIORITY,
                "prohibit",
            )
            done = _ip(family, "rule", "add", *rule)
            if done.returncode != 0:
                left_open[address] = done.stderr.strip()
    return left_open


def name_server_among(resolv_conf: str) -> bool:
    """Whether names come from an address that has the metadata too, so that it can't be denied whole."""
    servers = re.findall(r"^\s*nameserver\s+(\S+)", resolv_conf, re.MULTILINE)
    return any(server in addresses for addresses in ADDRESSES.values() for server in servers)


def main(argv: Sequence[str]) -> int:
    """Raise it for the user named. Never a reason not to train: what stays open is said."""
    journal = Journal.standard(os.environ)
    try:
        left_open = raise_for(pwd.getpwnam(argv[0]).pw_uid)
    except KeyError:
        journal.warning(f"there is no user {argv[0]} here to keep from the metadata server")
        return 1
    if reason := left_open.get("169.254.169.254"):
        journal.warning(
            f"{argv[0]} can ask the metadata server, which knows the keys in the user data: ip: {reason}",
            hint="install iproute2, or give the machine a role in place of keys",
        )
    return 0


def _ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*_IP, *arguments], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
