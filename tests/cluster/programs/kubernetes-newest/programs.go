// SPDX-License-Identifier: Apache-2.0

//go:build programs

// Package programs names the programs of Kubernetes that the tests run, so that `go mod tidy` keeps what they need.
package programs

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
