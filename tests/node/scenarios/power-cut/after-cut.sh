# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
step "the kernel has bound afresh"
expect_equal "drivers and overrides" "$(< /mnt/state/start)" "$(snapshot)"

step "without records there is nothing to restore"
expect_status "restore" 0 ferry vfio restore
expect_match "and it says so" "nothing to do" "$REPLY"

step "records of the boot before are void"
mkdir -p /run/ferry/hostd
cp -r /mnt/state/moves /run/ferry/hostd/
cp -r /mnt/state/stuck-writes /run/ferry/
expect_status "restore" 0 ferry vfio restore
expect_match "nothing is restored" "nothing to do" "$REPLY"
for record in /run/ferry/hostd/moves/*.json; do
  expect_match "the record is said to be void" "note: $record is of an earlier boot and void" "$REPLY"
done
evidence "notes" "$(grep note: <<< "$REPLY")"
expect_equal "drivers and overrides" "$(< /mnt/state/start)" "$(snapshot)"

step "the bind succeeds from scratch"
expect_status "bind" 0 ferry vfio bind --all
for name in card card-audio card-usb card-ucsi lone; do expect_equal "driver of $name" vfio-pci "$(driver $name)"; done
for record in /run/ferry/hostd/moves/*.json; do
  expect_equal "boot of $record" "$(< /proc/sys/kernel/random/boot_id)" "$(jq -r .boot_id "$record")"
done
expect_equal "what the card's GPU had" nvidia "$(jq -r ".devices[\"$(dev card)\"].driver" "/run/ferry/hostd/moves/$(group card).json")"
rm -r /mnt/state/moves
cp -r /run/ferry/hostd/moves /mnt/state/
ok
