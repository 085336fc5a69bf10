# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../node/lib source=node.sh
# A kubelet and a containerd that belong to the cluster on the machine. In /mnt/share are kubelet.yaml, kubelet.kubeconfig, the
# authority of the API server, and the pods' network. The disk has containerd's folder, with all images.
PATH=/mnt/kubernetes:$PATH # its containerd, and not the node's

step "the network"
interface=$(ls /sys/class/net | grep -v '^lo$')
ip link set "$interface" up
ip address add 10.202.0.2/24 dev "$interface"
ip route add default via 10.202.0.1
echo 1 > /proc/sys/net/ipv4/ip_forward
expect "the API server answers" wait_for ": 2> /dev/null < /dev/tcp/10.200.0.1/443" 60

step "containerd"
mount --make-rshared /
scratch=$(dirname "$(grep -l '^scratch$' /sys/block/vd*/serial)")
mkdir -p /run/disk /etc/containerd /opt/cni/bin /mnt/share/logs
mount "/dev/${scratch##*/}" /run/disk
cp /mnt/share/programs/* /opt/cni/bin/
cat > /etc/containerd/config.toml << CONF
version = 3
root = "/run/disk/containerd"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:1"
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "/mnt/share/networks"
CONF
service() { # NAME TYPE COMMAND: a service of the node's systemd; its output is on the machine
  printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=%s\nDelegate=yes\nKillMode=process\nTimeoutStartSec=300\nEnvironment=PATH=%s\nExecStart=%s\nStandardOutput=append:%s\nStandardError=inherit\n' \
    "$2" "$PATH" "$3" "/mnt/share/logs/$1" > "/run/systemd/system/$1.service"
  systemctl daemon-reload
  systemctl start "$1"
}
service containerd notify "/mnt/kubernetes/containerd"

step "the kubelet"
mkdir -p /var/lib/kubelet /var/log/pods /mnt/share/pods
mount --bind /mnt/share/pods /var/log/pods # the machine reads them without a question to the kubelet
echo "+cpu +cpuset +io +memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mount -t tmpfs tmpfs /var/lib/kubelet # on a mount of its own, for which the kubelet can count what is free
service kubelet simple "/mnt/kubernetes/kubelet --config=/mnt/share/kubelet.yaml --kubeconfig=/mnt/share/kubelet.kubeconfig --hostname-override=gpu-1 --node-ip=10.202.0.2 --housekeeping-interval=60s"
for name in l40s l40s-audio l40s-vgpu l40s-claims t4; do echo "$name $(dev $name)"; done > /mnt/share/devices
until [[ -e /mnt/share/end ]]; do read -rt 1 <> <(:) || :; done
