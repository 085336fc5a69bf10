# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
step "a whole bind does not outlive the boot either"
expect_equal "drivers and overrides" "$(< /mnt/state/start)" "$(snapshot)"
mkdir -p /run/ferry/hostd
cp -r /mnt/state/moves /run/ferry/hostd/
expect_status "restore" 0 ferry vfio restore
expect_match "nothing is restored" "nothing to do" "$REPLY"
expect_match "the records are void" "is of an earlier boot and void" "$REPLY"
expect_equal "drivers and overrides" "$(< /mnt/state/start)" "$(snapshot)"
expect_status "unbind" 0 ferry vfio unbind --all
expect_match "nothing is on vfio" "nothing to do" "$REPLY"
ok
