# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source-path=SCRIPTDIR/../../lib source=node.sh
# etcd and a real API server, from /mnt/kubernetes.
logs=/mnt/state/logs
certificates=/run/certificates

# Each token may do all: tests/cluster has the rights of Ferry's programs.
begin_api_server() {
  printf '%s\n' people,people,people agent,agent,agent dra,dra,dra > /run/tokens
  etcd --data-dir=/run/etcd --unsafe-no-fsync > $logs/etcd 2>&1 &
  {
    wait_for ": 2> /dev/null < /dev/tcp/127.0.0.1/2379" 120
    exec kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=127.0.0.1 --secure-port=6443 \
      --advertise-address=192.0.2.1 --endpoint-reconciler-type=none --service-cluster-ip-range=10.96.0.0/24 \
      --cert-dir=$certificates --token-auth-file=/run/tokens --authorization-mode=AlwaysAllow \
      --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=$certificates/apiserver.key \
      --service-account-signing-key-file=$certificates/apiserver.key
  } > $logs/api-server 2>&1 &
}
kubectl() {
  command kubectl --server=https://127.0.0.1:6443 --certificate-authority=$certificates/apiserver.crt --token=people "$@"
}
