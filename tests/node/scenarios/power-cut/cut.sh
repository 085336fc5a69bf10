# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
step "the card is bound halfway: its audio, USB and UCSI functions have no driver, its GPU's driver hangs"
snapshot > /mnt/state/start
dev card > /sys/module/ferry_testgpu/parameters/hang_remove
ferry vfio bind --all &
expect "the other GPU is bound" wait_for "[[ \$(driver lone) == vfio-pci ]]" 60
expect "the card's hangs" wait_for "grep -qs '\"value\": \"$(dev card)\"' /run/ferry/stuck-writes/*.json" 60
for name in card-audio card-usb card-ucsi; do
  expect_equal "driver of $name" "" "$(driver $name)"
  expect_equal "override of $name" vfio-pci "$(attribute $name driver_override)"
done
expect_equal "driver of the card's GPU: its link goes first" "" "$(driver card)"
cp -r /run/ferry/hostd/moves /run/ferry/stuck-writes /mnt/state/
sync
echo "READY: cut"
wait_for false 300
touch /mnt/state/survived
