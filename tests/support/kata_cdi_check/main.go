// SPDX-License-Identifier: Apache-2.0

// kata-cdi-check reads CDI files as Kata's runtime does: by version 0.6.0 of the CDI project's own library, which finds
// no device at all as long as one file is wrong.
//
//	kata-cdi-check REGISTRY...   prints a line for each: "good NAME..." or "bad ERROR"
//
// REGISTRY: folders joined by ":"; a later folder has a higher priority. Exit status: 0, or 2 for a mistake in the
// arguments.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/container-orchestrated-devices/container-device-interface/pkg/cdi"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kata-cdi-check FOLDER[:FOLDER...]...")
		os.Exit(2)
	}
	for _, registry := range os.Args[1:] {
		names, err := read(filepath.SplitList(registry))
		if err != nil {
			fmt.Println("bad", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Println("good", strings.Join(names, " "))
		}
	}
}

func read(folders []string) (names []string, err error) {
	// The library crashes with some files, and Kata's runtime with it.
	defer func() {
		if crash := recover(); crash != nil {
			err = fmt.Errorf("the library crashed: %v", crash)
		}
	}()
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(folders...))
	if err != nil {
		return nil, err
	}
	if err := cache.Refresh(); err != nil {
		return nil, err
	}
	names = cache.ListDevices()
	sort.Strings(names)
	return names, nil
}
