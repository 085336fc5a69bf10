// SPDX-License-Identifier: Apache-2.0

//go:build programs

// Package programs names the etcd that the tests run, so that `go mod tidy` keeps what they need.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
)
