#!/usr/bin/env bash
# What `make test-farm` needs beside Steelyard: Slurm, munge and OpenSSH from the system's packages, Ray by `steelyard env create ray`.
# Installs what is missing where that may be done, and otherwise says what to install; ends with 1 if anything is still missing.
# Ray's environment is .farm/ray; STEELYARD_RAY_PYTHON names the interpreter of another one.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-$here/.venv/bin/python}
packages=()
export PATH=$PATH:/usr/sbin:/sbin

wants() { command -v "$1" >/dev/null || packages+=("$2"); }
wants slurmctld slurmctld
wants slurmd slurmd
wants sbatch slurm-client
wants munged munge
wants sshd openssh-server
wants ssh openssh-client

missing() {
  echo "error: the farm's tests cannot run: $1" >&2
  echo "  $2" >&2
  exit 1
}

if [ ${#packages[@]} -gt 0 ]; then
  install=(apt-get install -qq -y --no-install-recommends "${packages[@]}")
  command -v apt-get >/dev/null || missing "${packages[*]} not found, and there is no apt-get" "install Slurm (slurmctld, slurmd, sbatch), munge and OpenSSH, and put them on PATH"
  [ "$(id -u)" = 0 ] || missing "${packages[*]} not installed, and only root may do that" "sudo ${install[*]}"
  echo "installing ${packages[*]} for the farm's tests; no service is started" >&2
  export DEBIAN_FRONTEND=noninteractive
  # A policy that refuses starts, unless there is one: the tests start daemons of their own.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
  fi
  "${install[@]}" >&2 || { apt-get update -qq >&2 && "${install[@]}" >&2; } || missing "apt-get could not install ${packages[*]} (see above)" "${install[*]}"
fi

export STEELYARD_ENVS=$here/.farm
[ -x "${STEELYARD_RAY_PYTHON:-$STEELYARD_ENVS/ray/bin/python}" ] || "$python" -m steelyard env create ray ||
  missing "Ray could not be installed (see above)" "a package registry that has ray must be reachable"
