// SPDX-License-Identifier: Apache-2.0

//go:build programs

// Package programs names the programs of containerd that the tests run, so that `go mod tidy` keeps what they need.
package programs

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
