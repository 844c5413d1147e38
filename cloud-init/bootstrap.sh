#!/bin/sh
# Gives the outlive agent a Python environment of its own, then hands over to it: outlive_agent.bootstrap.machine
# installs the units and the training. Runs at every boot, and does nothing twice.
set -eu
package={{package}}
venv=/opt/outlive/venv
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

try() { # a young machine's network and package locks need a moment
    n=1
    until "$@"; do
        [ "$n" -lt "${OUTLIVE_BOOTSTRAP_TRIES:-6}" ] || return 1
        echo "<5>that failed; again in $((n * 5)) s: $*"
        sleep $((n * 5))
        n=$((n + 1))
    done
}
apt() {
    apt-get -qq -o DPkg::Lock::Timeout=300 update &&
        apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}
fail() {
    echo "<3>the outlive agent could not be installed: $1. Then: systemctl restart outlive-bootstrap"
    exit 1
}

if [ "$(cat "$venv/installed" 2>/dev/null)" != "$package" ]; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail 'it needs Python 3.10 or newer; choose a newer image'
    need=
    python3 -c 'import ensurepip' 2>/dev/null || need=python3-venv
    case $package in *git+*) command -v git >/dev/null || need="$need git" ;; esac
    # shellcheck disable=SC2086 # $need is a list
    [ -z "$need" ] || try apt $need || fail "apt-get could not install $need, see above; install it by hand"
    python3 -m venv --clear "$venv" || fail "python3 could not make $venv, see above; is the disk full?"
    try "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$package" ||
        fail "pip could not install $package, see above; check the network, and agent.package in the job file"
    echo "$package" >"$venv/installed"
fi
exec "$venv/bin/python" -I -m outlive_agent.bootstrap.machine
