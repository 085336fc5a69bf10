# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR
# hostd with GPUs for claims: its policies and its record.
# shellcheck source=../hostd/lib.sh
. /mnt/tests/scenarios/hostd/lib.sh
# shellcheck source=../vgpu/lib.sh
. /mnt/tests/scenarios/vgpu/lib.sh
dra=(setpriv --reuid=64712 --regid=64712 --clear-groups) # the user of `ferry dra`
claims=/run/ferry/claims
record=/run/ferry/hostd/claims.json
dra_folders=() # which hostd gives to that user

start_hostd() {
  ferry --log-level info hostd --dra-user 64712 --dra-group 64712 "${dra_folders[@]/#/--dra-folder=}" \
    2>> /mnt/state/hostd.log &
  hostd=$!
}

want() { # POLICY: written as the agent does it
  jq -n --arg policy "$1" --rawfile config /run/policies.yaml '{version: 2, policy: $policy, config: $config}' \
    > /var/lib/ferry/.wanted
  mv /var/lib/ferry/.wanted /var/lib/ferry/desired.json
}

settles() { # PHASE POLICY
  wait_for "[[ \$(state '.phase + \" \" + (.desired.policy // \"-\")') == '$1 $2' ]]" 180 ||
    fail "it does not become $1: $(cat /run/ferry/status.json; cat /mnt/state/hostd.log)"
}

as_before() { # nothing is left of any claim
  expect_equal "drivers and overrides" "$(< /run/before)" "$(snapshot)"
  expect_equal "vGPUs" "" "$(vgpus)"
  expect_equal "claims" "" "$(recorded)"
}

group_of() { # a function or a mediated device: the number of its IOMMU group
  basename "$(readlink "/sys/bus/pci/devices/$1/iommu_group" || readlink "/sys/bus/mdev/devices/$1/iommu_group")"
}

recorded() { jq -r '[.claims[] | "\(.name) \(.phase)"] | join(",")' $record; }
claimable() { jq -r '[.gpus[] | select(.for_dra) | .address] | sort | join(" ")' $claims/gpus.json 2> /dev/null || :; }
addresses() { for name; do dev "$name"; done | sort | xargs; } # NAME...
claimable_become() { wait_for "[[ \$(claimable) == '$(addresses "$@")' ]]" 60; } # NAME...: hostd writes them after its status
