# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
PATH=/mnt/kubernetes:$PATH # its ctr can choose a user, which that of containerd 1.6 cannot
. /mnt/tests/scenarios/container/lib.sh
gpus=(one two three four)
root=/run/nvidia/driver
log=$root/run/nvidia-persistenced/orders
uid=0f2c1d3e-1111-2222-3333-444455556666
group=/sys/fs/cgroup/kubepods/burstable/pod$uid
cat > /run/policies.yaml << YAML
version: v2
policies:
  two-away: [{devices: [0, 1], mode: passthrough}]
  home: [{devices: all, mode: host}]
YAML
drivers() { for one in "${gpus[@]}"; do driver "$one"; done | paste -sd' '; }
opened() { # the GPUs that the daemon has open
  local one cards
  for one in "${gpus[@]}"; do
    cards=("/sys/bus/pci/devices/$(dev "$one")/drm/card"*)
    [[ ! -e ${cards[0]} ]] || [[ -z $(find "/proc/$daemon/fd" -lname "*/dev/dri/${cards[0]##*/}") ]] || echo "$one"
  done | paste -sd' '
}

step "a driver container as the gpu-operator has it, with its daemon"
mkdir -p /run/driver/{lower,upper,work} $root "$group"
mount -o ro /dev/vda /run/driver/lower
mount -t overlay -o lowerdir=/run/driver/lower,upperdir=/run/driver/upper,workdir=/run/driver/work overlay $root
for one in proc sys dev; do mount --rbind /$one $root/$one; done
install -D /mnt/bin/persistenced-standin $root/usr/bin/nvidia-persistenced
mkdir -p $root/run/nvidia-persistenced
words=()
for one in "${gpus[@]}"; do
  cards=("/sys/bus/pci/devices/$(dev "$one")/drm/card"*)
  words+=("$(dev "$one")=/dev/dri/${cards[0]##*/}")
done
begin_daemon() { # WORD...
  : > /run/daemon
  chroot $root /usr/bin/nvidia-persistenced /run/nvidia-persistenced/socket /run/nvidia-persistenced/orders "$@" > /run/daemon &
  daemon=$!
  echo $daemon > "$group/cgroup.procs"
  expect "it listens" wait_for "test -s /run/daemon" 60
}
begin_daemon "${words[@]}"
expect_equal "its GPUs" "one two three four" "$(opened)"

step "two go to VMs, and it keeps the other two"
want two-away
begin hostd
settles ready two-away
expect_equal "drivers" "vfio-pci vfio-pci bochs-drm bochs-drm" "$(drivers)"
expect_equal "its GPUs" "three four" "$(opened)"
expect "the daemon runs on" test -e /proc/$daemon
expect_equal "what it was asked" "$(dev one) off,$(dev two) off" "$(paste -sd, $log)"

step "they come back to it"
want home
settles ready home
expect_equal "drivers" "bochs-drm bochs-drm bochs-drm bochs-drm" "$(drivers)"
expect_equal "its GPUs" "one two three four" "$(opened)"
expect "nothing is owed" test ! -e /run/ferry/hostd/stopped-services.json

step "a daemon that refuses keeps them, and is named"
kill $daemon
wait $daemon || :
begin_daemon --status 3 "${words[@]}"
want two-away
settles blocked two-away
expect_equal "drivers" "bochs-drm bochs-drm bochs-drm bochs-drm" "$(drivers)"
expect_match "why" "nvidia-persistenced has answered 3 .its driver failed." "$(< /run/ferry/status.json)"

step "once it can, they go"
kill $daemon
wait $daemon || :
begin_daemon "${words[@]}"
settles ready two-away
expect_equal "drivers" "vfio-pci vfio-pci bochs-drm bochs-drm" "$(drivers)"
end hostd
kill $daemon
ok
