# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
# hostd's container as the value hostd.privileged makes it, on a host without systemd: the driver's tool, whole GPUs, and their way
# back, which a container without that privilege refuses.
PATH=/mnt/kubernetes:$PATH # its ctr can choose a user, which that of containerd 1.6 cannot
. /mnt/tests/scenarios/container/lib.sh
# shellcheck source-path=SCRIPTDIR/../vgpu source=lib.sh
. /mnt/tests/scenarios/vgpu/lib.sh
choose_spec privileged
gpus=(l40s)
install_sriov_manage
cat > /run/policies.yaml << YAML
version: v2
policies:
  divided: [{address: "$(dev l40s)", mode: vgpu, vgpu-devices: {L40S-12Q: 2}}]
  away: [{address: "$(dev l40s)", mode: passthrough}]
  home: [{address: "$(dev l40s)", mode: host}]
YAML

step "no systemd, and the driver's tool of the host"
expect "no systemd" test ! -e /run/systemd/system
want divided
expect_status "divided" 0 hostd . --once
expect_equal "virtual functions" 16 "$(vfs)"
expect_equal "vGPUs" "$(printf '%s 1153\n' "$(vf l40s 0)" "$(vf l40s 1)")" "$(vgpus)"

step "the GPU goes to VMs whole"
want away
expect_status "away" 0 hostd . --once
expect_equal "driver" vfio-pci "$(driver l40s)"

step "without the privilege it does not come back: hostd cannot say whether a VM has it"
want home
expect_status "without the privilege" 4 hostd '.securityContext.privileged = false' --once
expect_match "why" "Ferry cannot find out whether $(dev l40s) is in use" "$REPLY"
expect_equal "driver" vfio-pci "$(driver l40s)"

step "nor while a VM has it"
exec {vm}<> "/dev/vfio/$(group l40s)"
expect_status "in use" 4 hostd . --once
expect_match "who has it" "$$" "$REPLY"
expect_equal "driver" vfio-pci "$(driver l40s)"
exec {vm}>&-

step "with it, it does"
expect_status "home" 0 hostd . --once
expect_equal "driver" nvidia "$(driver l40s)"
ok
