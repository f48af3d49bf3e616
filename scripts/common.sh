# Shared by the scripts of this folder; sourced, never run.
# shellcheck shell=bash

# Everything that is not the result goes to standard error.
say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# The root of the repository, whatever folder the caller is in.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# apt_install WHY PACKAGE...: installs from the distribution, or says exactly what to install.
apt_install() {
  local why=$1
  shift
  local as_root=()
  if ! have apt-get; then
    if [ "$(uname -s)" = Darwin ]; then
      die "$why. Install it with Homebrew (redis: 'brew install redis'; compilers: 'xcode-select --install'; the rest: 'brew install cmake ninja'), then run this again"
    fi
    die "$why. This system has no apt-get: install what Debian calls '$*' with its own package manager, then run this again"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || die "$why. As root, run: apt-get update && apt-get install -y $*"
    as_root=(sudo)
  fi
  say "$why: installing $* from the distribution"
  # A machine that was never updated has no package lists; the lock is waited for, as another run may hold it.
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update >&2 ||
    say "warning: apt-get update failed; trying with the package lists at hand"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 -qq -y --no-install-recommends install "$@" </dev/null >&2 ||
    die "could not install $*. Install them by hand, then run this again"
}

# A Python that can read YAML and judge it by a schema: the first one on PATH, or the distribution's own.
python_with_yaml() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import yaml, jsonschema' 2>/dev/null; then
      printf '%s\n' "$python"
      return
    fi
  done
  return 1
}
