// SPDX-License-Identifier: Apache-2.0

// k8s-strict FILE...: holds manifests against the Go types of Kubernetes, offline. A field that the type lacks, a key
// that stands twice, a value of another type and a kind that nobody knows are errors, which `kubectl apply` may let pass.
// "-" is standard input. Status 0: all are right; 1: some are not, or there is none; 2: a file cannot be read.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// Whether there is more than comments: Helm writes the places of templates that rendered nothing.
func holdsAnything(document []byte) bool {
	var value any
	return yaml.Unmarshal(document, &value) != nil || value != nil
}

// The documents that are right, and those that are not.
func check(name string, from io.Reader, decoder runtime.Decoder) (good, bad int, err error) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(from)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return good, bad, nil
		}
		if err != nil {
			return good, bad, err
		}
		if !holdsAnything(document) {
			continue
		}
		if _, _, err := decoder.Decode(document, nil, nil); err != nil {
			fmt.Printf("%s, document %d: %v\n", name, good+bad+1, err)
			bad++
			continue
		}
		good++
	}
}

func open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(name)
}

func main() {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	right, wrong := 0, 0
	for _, name := range os.Args[1:] {
		file, err := open(name)
		if err == nil {
			var good, bad int
			good, bad, err = check(name, file, decoder)
			right, wrong = right+good, wrong+bad
			file.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "k8s-strict: %v\n", err)
			os.Exit(2)
		}
	}
	fmt.Printf("%d documents are right, %d are not\n", right, wrong)
	if wrong > 0 || right == 0 {
		os.Exit(1)
	}
}
