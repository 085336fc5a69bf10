# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# The bounds of Ferry's units, as systemd has them (SECURITY.md).

is_bounded() { # UNIT: what systemd shows of it
  local shown wanted
  shown=$(systemctl show "$1")
  for wanted in NoNewPrivileges=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes ProtectHostname=yes ProtectKernelLogs=yes \
    LockPersonality=yes RestrictRealtime=yes RestrictSUIDSGID=yes RestrictNamespaces=yes \
    SystemCallArchitectures=native MemoryMax=536870912 TasksMax=256 \
    ProtectKernelTunables=no ProtectKernelModules=no DevicePolicy=auto; do
    expect "$1 has $wanted and not $(grep "^${wanted%%=*}=" <<< "$shown")" grep -qx "$wanted" <<< "$shown"
  done
  expect_equal "the capabilities of $1" \
    "cap_checkpoint_restore cap_chown cap_dac_read_search cap_mknod cap_sys_admin cap_sys_chroot cap_sys_module cap_sys_ptrace cap_sys_rawio" \
    "$(systemctl show -P CapabilityBoundingSet "$1" | tr ' ' '\n' | sort | paste -sd' ')"
  expect_equal "the sockets of $1" "AF_NETLINK AF_UNIX" "$(systemctl show -P RestrictAddressFamilies "$1" | tr ' ' '\n' | sort | paste -sd' ')"
}

cannot_write() { # PID FOLDER...: in the mount namespace of that process, where this shell can
  local pid=$1 folder
  shift
  for folder; do
    expect "this shell can write to /$folder" touch "/$folder/written-by-shell"
    rm "/$folder/written-by-shell"
    touch "/proc/$pid/root/$folder/written" 2> /dev/null || :
    expect "no write to /$folder" test ! -e "/$folder/written"
  done
}

is_confined() { # PID: the process itself
  local status
  status=$(< "/proc/$1/status")
  expect_match "its capabilities, and those that a program of it can have" "CapEff:.00000100082f0005.CapBnd:.00000100082f0005" "$status"
  expect_match "its filter" "Seccomp:.2" "$status"
  expect_match "no more rights to be had" "NoNewPrivs:.1" "$status"
}
