# SPDX-License-Identifier: Apache-2.0
# VMs inside the virtual node: libvirt, and guests that say which PCI devices they see (guest/init).
# shellcheck shell=bash

start_libvirt() { # starts dbus, virtlogd and libvirtd and waits until libvirtd answers
  mkdir -p /run/dbus /run/libvirt
  dbus-daemon --system --nosyslog
  cat > /etc/libvirt/qemu.conf <<'CONF'
user = "root"
group = "root"
security_driver = "none"
namespaces = []
cgroup_controllers = []
CONF
  virtlogd -d
  libvirtd -d
  wait_for "virsh -q -c qemu:///system uri > /run/libvirt-uri 2>&1" 120 ||
    fail "libvirtd does not answer: $(< /run/libvirt-uri)"
}

guest_memory() { echo 64; } # MiB that a guest needs

# The GPU's ROM is left out: firmware would run it, for a third of the guest's time under emulation inside emulation.
domain_xml() { # NAME CONSOLE-LOG [pci=ADDRESS | mdev=UUID | argument=WORD]...: as KubeVirt's virt-launcher writes it
  local name=$1 log=$2 item number=0 hostdevs='' arguments='console=ttyS0 quiet no_timer_check'
  shift 2
  for item in "$@"; do
    number=$((number + 1))
    case $item in
      pci=*)
        [[ ${item#*=} =~ ^([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$ ]] || fail "not a PCI address: ${item#*=}"
        hostdevs+="
    <hostdev mode='subsystem' type='pci' managed='no'>
      <source><address domain='0x${BASH_REMATCH[1]}' bus='0x${BASH_REMATCH[2]}' slot='0x${BASH_REMATCH[3]}' function='0x${BASH_REMATCH[4]}'/></source>
      <rom bar='off'/>
      <alias name='ua-hostdev-$number'/>
    </hostdev>"
        ;;
      mdev=*)
        hostdevs+="
    <hostdev mode='subsystem' type='mdev' model='vfio-pci'>
      <source><address uuid='${item#*=}'/></source>
      <alias name='ua-hostdev-$number'/>
    </hostdev>"
        ;;
      argument=*) arguments+=" ${item#*=}" ;;
      *) fail "domain_xml: what is $item?" ;;
    esac
  done
  cat << XML
<domain type='qemu'>
  <name>$name</name>
  <memory unit='MiB'>$(guest_memory)</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/mnt/guest/kernel</kernel>
    <initrd>/mnt/guest/initrd</initrd>
    <cmdline>$arguments</cmdline>
  </os>
  <features><acpi/></features>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <serial type='pty'><log file='$log' append='off'/></serial>$hostdevs
  </devices>
</domain>
XML
}

# libvirt waits without an end for a QEMU that does not answer.
guest_start() { # NAME [pci=ADDRESS | mdev=UUID]...: through libvirt; its console goes to /mnt/state/NAME.console
  local name=$1 status=0
  shift
  domain_xml "$name" "/mnt/state/$name.console" "$@" > "/run/$name.xml"
  within 200 virsh -q -c qemu:///system create "/run/$name.xml" || status=$?
  ((status == 0)) || {
    guest_look "$name"
    fail "the guest $name does not start: virsh ended with $status (124: its time was up)"
  }
}

guest_wait() { # NAME SECONDS: until it has named its devices; fails when its console has had no new line for so long
  wait_for "grep -qs ^GUEST-READY '/mnt/state/$1.console'" "$2" "/mnt/state/$1.console" || {
    guest_look "$1"
    fail "the guest $1 made no progress for $2 s: $(tail -n 3 "/mnt/state/$1.console" || :)"
  }
}

guest_look() { # NAME: shows where one that does not go on is: its processor twice, and each thread of its QEMU
  # Whatever fails here is nothing to end a job for: threads come and go.
  (
    trap - ERR
    set +eE
    for _ in 1 2; do timeout 20 virsh -c qemu:///system qemu-monitor-command "$1" --hmp "info registers" | head -n 9; done
    pgrep -f "guest=$1([ ,]|$)" > /dev/null || echo "no QEMU of the guest $1 runs"
    for process in $(pgrep -f "guest=$1([ ,]|$)"); do
      for thread in /proc/"$process"/task/*; do head -n 12 "$thread"/{comm,stack} && grep State: "$thread/status"; done
    done
  ) 2>&1 || :
}

guest_devices() { # NAME: its GUEST-PCI lines
  grep ^GUEST-PCI "/mnt/state/$1.console" | tr -d '\r'
}

guest_stop() { # NAME: tells it to power off, on its console, and waits until it is gone
  local path console
  path=$(virsh -q -c qemu:///system ttyconsole "$1")
  exec {console}<> "$path" # held open: QEMU looks only now and then whether someone is at the other end
  stty raw -echo <&"$console"
  echo "power off" >&"$console"
  wait_for "! virsh -q -c qemu:///system domstate '$1' > /dev/null 2>&1" 120 || fail "the guest $1 does not power off"
  exec {console}>&-
}
