# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../lib source=node.sh
PATH=${PATH//\/mnt\/bin:/} # what is run here is what is installed
. /mnt/tests/scenarios/release/lib.sh
mkdir -p /var/lib/dpkg/info # the image has none
packages() { dpkg --force-unsafe-io --log=/mnt/state/dpkg.log "$@"; }
of_unit() { systemctl show -P "$2" "ferry-$1.service"; } # UNIT PROPERTY
state() { jq -r "$1" /run/ferry/status.json 2> /dev/null; }

step "installed, they start nothing"
expect_status "install" 0 packages --install /mnt/packages/*.deb
expect_equal "ferry" /usr/bin/ferry "$(command -v ferry)"
for unit in hostd apply; do
  expect_equal "ferry-$unit, known" loaded "$(of_unit $unit LoadState)"
  expect_equal "ferry-$unit, to systemd" inactive "$(of_unit $unit ActiveState)"
  expect_equal "ferry-$unit, at boot" disabled "$(of_unit $unit UnitFileState)"
  is_bounded ferry-$unit
done
expect_equal "the GPU's driver" nvidia "$(driver gpu)"
expect_status "the program" 0 ferry --version
expect_match "its version" "^ferry [0-9]" "$REPLY"

step "hostd is a service, and does what is wanted"
mkdir -p /var/lib/ferry
jq -n '{version: 2, policy: "away", config: "version: v2\npolicies:\n  away: [{devices: all, mode: passthrough}]\n"}' \
  > /var/lib/ferry/desired.json
expect_status "enable" 0 systemctl enable --now ferry-hostd
expect "the GPU is on vfio-pci" wait_for '[[ $(driver gpu) == vfio-pci ]]' 120
expect "hostd says so" wait_for '[[ $(state .phase) == ready ]]' 60
expect_equal "at boot" enabled "$(of_unit hostd UnitFileState)"
is_confined "$(of_unit hostd MainPID)"
cannot_write "$(of_unit hostd MainPID)" etc usr/bin

step "replaced, hostd goes on with the new program, and what is bound stays bound"
before=$(of_unit hostd MainPID)
events=$(state .generation)
expect_status "the same again" 0 packages --install /mnt/packages/*.deb
expect "another process" wait_for '[[ $(of_unit hostd MainPID) != "$before" && $(of_unit hostd ActiveState) == active ]]' 60
expect "it has looked" wait_for '[[ $(state .phase) == ready ]]' 60
evidence "generations" "$events, $(state .generation)"
expect_equal "the GPU's driver" vfio-pci "$(driver gpu)"
expect_equal "ferry-apply is left alone" inactive "$(of_unit apply ActiveState)"

step "removed, its services end, and the GPU stays where it is"
expect_status "remove" 0 packages --remove ferry-virt kubectl-ferry ferry
expect_equal "hostd, to systemd" "not-found inactive" "$(of_unit hostd LoadState) $(of_unit hostd ActiveState)"
expect "no hostd runs" test -z "$(pgrep -f '^/usr/bin/ferry hostd' || true)"
expect "nothing of it at boot" test -z "$(find /etc/systemd -name 'ferry-*')"
expect "no program" test ! -e /usr/bin/ferry
expect_equal "the GPU's driver" vfio-pci "$(driver gpu)"

step "purged, they leave what the container runtime may need"
expect_status "purge" 0 packages --purge ferry-virt kubectl-ferry ferry
expect "what was wanted" test -e /var/lib/ferry/desired.json
expect_equal "packages of ours" "" "$(dpkg-query -W -f '${Package} ' 'ferry*' 'kubectl-ferry*' 2> /dev/null || true)"
ok
