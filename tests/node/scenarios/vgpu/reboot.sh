# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
. /mnt/tests/scenarios/vgpu/lib.sh

step "nothing has survived"
expect_equal "vGPUs" "" "$(vgpus)"
expect_equal "virtual functions" "0 0 0" "$(vfs)"

step "a tool that fails in silence is not believed"
install_sriov_manage
dev l40s-vfio > /sys/module/ferry_testgpu/parameters/refuse_lock
expect_status "apply" 1 ferry vgpu apply -f $profiles -c three-gpus
expect_match "the GPU that got none" "$(dev l40s-vfio)" "$REPLY"
expect_equal "virtual functions" "0 16 0" "$(vfs)"
echo > /sys/module/ferry_testgpu/parameters/refuse_lock

step "the same vGPUs as before"
expect_status "apply" 0 ferry vgpu apply -f $profiles -c three-gpus
expect_equal "UUIDs and functions" "$(< /mnt/state/vgpus)" "$(vgpus)"
expect_status "assert" 0 ferry vgpu assert -f $profiles -c three-gpus
ok
