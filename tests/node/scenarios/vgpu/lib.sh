# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# What the boots of this scenario share.
profiles=/mnt/tests/scenarios/vgpu/profiles.yaml
placed=/mnt/tests/scenarios/vgpu/placed.yaml
gpus=(t4 l40s-mdev l40s-vfio)

pf() { # NAME
  echo "/sys/bus/pci/devices/$(dev "$1")"
}

vf() { # NAME NUMBER: the address of a virtual function
  basename "$(readlink "$(pf "$1")/virtfn$2")"
}

vgpus() { # a line for each vGPU: the function that carries it, its type, its UUID where it has one
  local device parent type
  for device in /sys/class/mdev_bus/*/*-*-*-*-*; do
    [[ -e $device/mdev_type ]] || continue
    parent=${device%/*}
    echo "${parent##*/} $(< "$device/mdev_type/name") ${device##*/}"
  done
  for device in /sys/bus/pci/devices/*/nvidia/current_vgpu_type; do
    [[ -e $device ]] || continue
    type=$(< "$device")
    parent=${device%/nvidia/*}
    [[ $type == 0 ]] || echo "${parent##*/} $type"
  done
}

mark() { # so that a vGPU which is made anew can be told: its parameters are gone then
  local params
  for params in /sys/bus/mdev/devices/*/nvidia/vgpu_params /sys/bus/pci/devices/*/nvidia/vgpu_params; do
    { echo seen > "$params"; } 2> /dev/null || :
  done
}

marked() { # the vGPUs that have their mark, by UUID or address
  { grep -lx seen /sys/bus/mdev/devices/*/nvidia/vgpu_params /sys/bus/pci/devices/*/nvidia/vgpu_params 2> /dev/null || :; } |
    sed -E 's|.*/([^/]+)/nvidia/vgpu_params|\1|'
}

places() { # of all vGPUs that have a place, one line
  { cat /sys/bus/mdev/devices/*/nvidia/placement_id /sys/bus/pci/devices/*/nvidia/placement_id 2> /dev/null || :; } |
    sort | xargs
}

vfs() { # how many virtual functions each GPU has, one line
  local name
  for name in "${gpus[@]}"; do find "$(pf $name)/" -maxdepth 1 -name 'virtfn*' | wc -l; done | xargs
}

install_sriov_manage() { # the driver's tool, without which the driver makes no virtual functions from now on
  install -D /mnt/tests/scenarios/vgpu/sriov-manage /usr/lib/nvidia/sriov-manage
  echo Y > /sys/module/ferry_testgpu/parameters/vfs_need_lock
}
