# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# What the boots of this scenario share.
plugins=/var/lib/kubelet/device-plugins

start_hostd() {
  ferry --log-level info hostd 2>> /mnt/state/hostd.log &
  hostd=$!
}

start() { # what stands for the kubelet, the plugin and hostd
  mkdir -p $plugins /var/lib/kubelet/pod-resources
  kubelet-standin serve --dir $plugins --pod-resources /var/lib/kubelet/pod-resources > /mnt/state/standin.log 2>&1 &
  expect "the kubelet listens" wait_for "test -S $plugins/kubelet.sock" 30
  ferry plugin 2>> /mnt/state/plugin.log &
  start_hostd
}

state() { jq -r "$1" /run/ferry/status.json 2> /dev/null; }

settles() { # PHASE POLICY
  wait_for "[[ \$(state '.phase + \" \" + (.desired.policy // \"-\")') == '$1 $2' ]]" 60 ||
    fail "it does not become $1: $(cat /run/ferry/status.json; cat /mnt/state/hostd.log)"
}

resources() { # devices that the kubelet may give out, a line for each: its resource's name and its own
  kubelet-standin resources --dir $plugins |
    jq -r 'to_entries[] | .key as $name | .value.devices[] | select(.health == "Healthy" and (.id | startswith("place-") | not)) |
      "\($name) \(.id)"' | sort
}

advertised() { resources | cut -d' ' -f2 | sort | xargs; }
