# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
# What hostd.hostTools adds to hostd's container: the host's root, and the right to make it a program's own.
PATH=/mnt/kubernetes:$PATH # its ctr can choose a user, which that of containerd 1.6 cannot
. /mnt/tests/scenarios/container/lib.sh
# shellcheck source-path=SCRIPTDIR/../vgpu source=lib.sh
. /mnt/tests/scenarios/vgpu/lib.sh
choose_spec host-tools
gpus=(l40s)
tool=/usr/lib/nvidia/sriov-manage
told=/run/ferry/tool # what the tool was told, and what its root was
install_sriov_manage
# shellcheck disable=SC2016 # the tool expands it
sed -i "2i echo \"\$* \$(stat -c %d:%i /)\" >> $told" $tool
cat > /run/policies.yaml << YAML
version: v2
policies:
  divided: [{address: "$(dev l40s)", mode: vgpu, vgpu-devices: {L40S-12Q: 2}}]
  away: [{address: "$(dev l40s)", mode: passthrough}]
YAML

fails() { # WHAT CHANGE REGEX: what hostd says without that; nothing is made
  expect_status "$1" 1 hostd "$2" --once
  expect_match "$1" "$3: Operation not permitted" "$REPLY"
  evidence "$1" "$(grep -m1 "not permitted" <<< "$REPLY")"
  expect_equal "virtual functions" 0 "$(vfs)"
  expect "the tool has not run" test ! -e $told
}

step "without the host's root the tool is not found, and the kernel's own way is of no use"
want divided
fails "without root" "$(without root)" "write /sys/bus/pci/devices/$(dev l40s)/sriov_numvfs"

step "without CAP_SYS_CHROOT the tool is not run"
fails "without SYS_CHROOT" "$(without_capability SYS_CHROOT)" "run $tool -e $(dev l40s)"

step "with both the host's tool makes the virtual functions, below the host's root"
for file in /bin/bash $tool; do expect "no $file in the image" test ! -e "$image$file"; done
expect_status "with both" 0 hostd . --once
expect_equal "virtual functions" 16 "$(vfs)"
expect_equal "the tool" "-e $(dev l40s) $(stat -c %d:%i /)" "$(< $told)"
expect_equal "vGPUs" "$(printf '%s 1153\n' "$(vf l40s 0)" "$(vf l40s 1)")" "$(vgpus)"
evidence "vGPUs" "$(vgpus)"

step "and takes them away, where the GPU is given away whole"
want away
expect_status "away" 0 hostd . --once
expect_equal "virtual functions" 0 "$(vfs)"
expect_equal "driver" vfio-pci "$(driver l40s)"
expect_equal "the tool" "-d $(dev l40s) $(stat -c %d:%i /)" "$(tail -n +2 $told)"

step "the tool of a driver container that comes while hostd runs, by its mount"
rm /run/ferry/status.json # so that it is the one that runs who says it
begin hostd
settles ready away
mkdir -p /run/driver/{lower,upper,work} /run/nvidia/driver
mount -o ro /dev/vda /run/driver/lower
mount -t overlay -o lowerdir=/run/driver/lower,upperdir=/run/driver/upper,workdir=/run/driver/work overlay /run/nvidia/driver
for one in proc sys run/ferry; do
  mkdir -p /run/nvidia/driver/$one
  mount --bind /$one /run/nvidia/driver/$one
done
install -D $tool /run/nvidia/driver$tool
rm $tool $told
want divided
settles ready divided
expect_equal "virtual functions" 16 "$(vfs)"
expect_equal "the tool" "-e $(dev l40s) $(stat -c %d:%i /run/nvidia/driver)" "$(< $told)"
end hostd
ok
