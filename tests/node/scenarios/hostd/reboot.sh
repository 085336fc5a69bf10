# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR source=lib.sh
. /mnt/tests/scenarios/hostd/lib.sh

step "the kernel has bound afresh, and of Ferry's only desired.json is there"
for name in gpu-a gpu-a-audio gpu-b gpu-b-audio; do
  expect_equal "driver of $name" "$(planned $name driver)" "$(driver $name)"
done
expect_equal "vGPUs" "" "$(ls /sys/class/mdev_bus/*/*-*-*-*-* 2> /dev/null || :)"
expect "nothing of the boot before" test ! -e /run/ferry
cp -r /mnt/state/ferry /var/lib/
expect_equal "what is carried over" desired.json "$(ls /var/lib/ferry)"

step "by that alone the node is as it was"
start
settles ready divided
expect_equal "drivers and overrides" "$(< /mnt/state/bindings)" "$(snapshot)"
expect "the same resources are advertised" wait_for '[[ $(resources) == "$(< /mnt/state/resources)" ]]' 60
evidence "advertised" "$(resources)"
ok
