// SPDX-License-Identifier: Apache-2.0

// cdi-check reads the CDI files of a folder with the CDI project's own library, the one that containerd uses.
//
//	cdi-check FOLDER              prints the name of each device
//	cdi-check FOLDER DEVICE...    prints the OCI specification that a container with these devices gets, as JSON
//
// Exit status: 0 all is valid, 1 a file is not valid or a device does not exist, 2 a mistake in the arguments.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cdi-check FOLDER [DEVICE...]")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "cdi-check: %v\n", err)
		os.Exit(1)
	}
}

func check(folder string, devices []string) error {
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(folder))
	if err != nil {
		return err
	}
	// The library skips a file that it cannot read, so each file is also read alone.
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := cdi.ReadSpec(file, 0); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	for file, errors := range cache.GetErrors() {
		return fmt.Errorf("%s: %v", file, errors)
	}
	if len(devices) == 0 {
		for _, device := range cache.ListDevices() {
			fmt.Println(device)
		}
		return nil
	}
	specification := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if _, err := cache.InjectDevices(specification, devices...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(specification)
}
