# SPDX-License-Identifier: Apache-2.0
# What a job inside the virtual node can use. Sourced for it before its first line, with errors ending the job.
# shellcheck shell=bash
unset BASH_ENV
set -Eeuo pipefail
trap '_failed $? "$BASH_COMMAND" "${BASH_SOURCE[0]-}" "$LINENO"' ERR

# --- what the runner reads --------------------------------------------------------------------------------------------

_json() { # TEXT: as a JSON string, in $REPLY
  local text=$1 i char
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\t'/\\t}
  text=${text//$'\r'/\\r}
  if [[ $text == *[$'\x01'-$'\x1f\x7f']* ]]; then
    local clean=
    for ((i = 0; i < ${#text}; i++)); do
      char=${text:i:1}
      if [[ $char == [$'\x01'-$'\x1f\x7f'] ]]; then printf -v char '\\u%04x' "'$char"; fi
      clean+=$char
    done
    text=$clean
  fi
  REPLY=\"$text\"
}

_record() { # KIND [KEY VALUE]...: one line to the runner; a KEY that begins with # has a number as its value
  local line REPLY
  _json "$1"
  line="{\"record\":$REPLY"
  shift
  while (($# > 1)); do
    if [[ $1 == '#'* ]]; then
      line+=",\"${1#'#'}\":$2"
    else
      _json "$2"
      line+=",\"$1\":$REPLY"
    fi
    shift 2
  done
  printf '%s}\n' "$line" > "$FERRY_RECORDS"
}

# Bash goes on after a $(...) that fails as an argument, and its text is empty then. So a failure in a subshell fails the step
# as well. A command that may fail there stands before `||`, or in a condition.
_failed() { # STATUS COMMAND FILE LINE: the ERR trap
  trap - ERR
  local where="${3##*/} line $4"
  echo "--- FAILED at $where (status $1): $2" >&2
  _record fail why "$where: $2: status $1"
  exit "$1"
}

# --- steps ------------------------------------------------------------------------------------------------------------

step() { # NAME: begins a step; the one before it is ok, since a failing command would have ended the job
  echo "--- $*"
  _record step name "$*"
}

ok() { # ends the step
  _record ok
}

evidence() { # KEY VALUE: kept with the step in result.json; a value that is not there is a failure
  [[ -n $2 ]] || fail "there is nothing to show of $1"
  printf '    %s: %s\n' "$1" "$2"
  _record evidence key "$1" value "$2"
}

fail() { # WHY...: ends the step and the job
  trap - ERR
  echo "--- FAILED: $*" >&2
  _record fail why "$*"
  exit 1
}

expect() { # WHAT COMMAND...: the step holds only if the command succeeds
  local what=$1
  shift
  "$@" || fail "$what: it is not so: $*"
}

expect_equal() { # WHAT WANTED FOUND
  [[ $2 == "$3" ]] || fail "$1: wanted \"$2\", found \"$3\""
}

expect_match() { # WHAT REGEX TEXT
  [[ $3 =~ $2 ]] || fail "$1: \"$2\" is not in \"$3\""
}

expect_status() { # WHAT STATUS COMMAND...: the command must end with this status; its output is left in $REPLY
  local what=$1 wanted=$2 found=0
  shift 2
  REPLY=$("$@" 2>&1) || found=$?
  printf '%s\n' "$REPLY"
  ((found == wanted)) || fail "$what: status $found instead of $wanted from: $*"
}

# The runner writes here how many seconds this node could run. Time in which its machine was busy with other things does not
# count, so a limit means the same on any machine.
_node_seconds() { read -r node_seconds < "${FERRY_SECONDS:-/mnt/state/.seconds}"; }

wait_for() { # CONDITION SECONDS [FILE]: tries a command until it succeeds; fails when so many of the node's seconds are up
  # With FILE, a console, it fails when that has had no new line for so long, and in any case after ten times as long.
  local node_seconds begin since seen=0 lines=()
  _node_seconds
  begin=$node_seconds since=$node_seconds
  until eval "$1"; do
    _node_seconds
    if [[ -e ${3-} ]]; then mapfile -t lines < "$3"; fi
    if ((${#lines[@]} != seen)); then seen=${#lines[@]} since=$node_seconds; fi
    ((node_seconds <= since + $2 && node_seconds <= begin + 10 * $2)) || return 1
    read -rt 0.1 <> <(:) || :
  done
}

within() { # SECONDS COMMAND...: its status, or 124 where so many of the node's seconds are up; then it gets SIGKILL
  local seconds=$1 command status=0
  shift
  "$@" &
  command=$!
  if ! wait_for "! kill -0 $command 2> /dev/null" "$seconds"; then
    kill -KILL "$command" || : # one that hangs in the kernel stays
    return 124
  fi
  wait "$command" || status=$?
  return "$status"
}

# --- devices ----------------------------------------------------------------------------------------------------------

_plan() { # NAME FIELD: a field of the device's line in the scenario's table, in $REPLY
  local name fields
  while read -r name fields; do
    if [[ $name == "$1" ]]; then
      # shellcheck disable=SC2086 # the table's fields are words
      set -- "$2" $fields
      REPLY=${!1}
      return
    fi
  done < /mnt/run/devices
  echo "no device is named $1 in this scenario" >&2
  return 1
}

_dev() { # NAME: dev without the fork, in $REPLY
  local hops hop address='' bus=0000:00
  _plan "$1" 2 || return
  IFS=/ read -ra hops <<< "$REPLY"
  for hop in "${hops[@]}"; do
    if [[ -n $address ]]; then
      read -r bus < "/sys/bus/pci/devices/$address/secondary_bus_number" || return
      printf -v bus '0000:%02x' "$bus"
    fi
    printf -v address '%s:%02x.%x' "$bus" "0x${hop%.*}" "0x${hop#*.}"
  done
  REPLY=$address
}

dev() { # NAME: the address that the kernel gave it, found along the way from its root port; it need not be plugged
  _dev "$1"
  echo "$REPLY"
}

devices() { # the names of all devices of the scenario
  local name rest
  while read -r name rest; do echo "$name"; done < /mnt/run/devices
}

planned() { # NAME WHAT: what the scenario gives it: vendor, device, subsystem_vendor, subsystem_device, class, driver
  local ids
  case $2 in
    driver) _plan "$1" 3 && echo "${REPLY#-}"; return ;;
  esac
  _plan "$1" 5 || return
  IFS=: read -ra ids <<< "$REPLY"
  case $2 in
    vendor) echo "${ids[0]}" ;;
    device) echo "${ids[1]}" ;;
    subsystem_vendor) echo "${ids[2]}" ;;
    subsystem_device) echo "${ids[3]}" ;;
    class) echo "${ids[4]}" ;;
    *) return 1 ;;
  esac
}

driver() { # NAME: the driver that it is bound to, or nothing
  _dev "$1"
  local link=/sys/bus/pci/devices/$REPLY/driver
  [[ ! -e $link ]] || basename "$(readlink "$link")"
}

group() { # NAME: the number of its IOMMU group, or nothing
  _dev "$1"
  local link=/sys/bus/pci/devices/$REPLY/iommu_group
  [[ ! -e $link ]] || basename "$(readlink "$link")"
}

attribute() { # NAME FILE: what sysfs says of it
  _dev "$1"
  cat "/sys/bus/pci/devices/$REPLY/$2"
}

to_vfio() { # NAME: binds it to vfio-pci by hand, where the rig and not Ferry is what is tested
  _dev "$1"
  local device=/sys/bus/pci/devices/$REPLY address=$REPLY
  echo vfio-pci > "$device/driver_override"
  [[ ! -e $device/driver ]] || echo "$address" > "$device/driver/unbind"
  echo "$address" > /sys/bus/pci/drivers_probe
  expect_equal "$1" vfio-pci "$(driver "$1")"
}

snapshot() { # [ADDRESS]: for every function a line with its driver and one with its override, which an unbind has to give
  # back; without the override of ADDRESS: reading it hangs while the function's driver does
  (
    cd /sys/bus/pci/devices
    overrides=()
    for one in *; do [[ $one == "${1-}" ]] || overrides+=("./$one/driver_override"); done
    { stat -c %N ./*/driver 2> /dev/null || :; grep . "${overrides[@]}"; } |
      sed -E "s|^'?./([^/]*)/driver' -> '.*/([^/]*)'$|\1 driver \2|; s|^./([^/]*)/driver_override:|\1 driver_override |" | sort
  )
}

as_guest_line() { # NAME: the IDs that this run gives it, as a guest prints them
  echo "vendor=$(planned "$1" vendor) device=$(planned "$1" device) class=$(planned "$1" class)" \
    "subsystem_vendor=$(planned "$1" subsystem_vendor) subsystem_device=$(planned "$1" subsystem_device)"
}

# shellcheck source-path=SCRIPTDIR source=domain.sh
. "${BASH_SOURCE[0]%/*}/domain.sh"
