// SPDX-License-Identifier: Apache-2.0

// kubevirt-strict RELEASE: holds the KubeVirt objects on standard input against KubeVirt's Go types, and against the schemas
// of its custom resources and the names of its feature gates in the folder RELEASE. The types alone would let unknown fields
// pass: since 1.9 a VM's spec has a decoder of its own, which is not strict. Rules in CEL and webhooks are left out.
// Status 0: all are right; 1: some are not, or there is none; 2: the folder or the input cannot be read.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubevirt "kubevirt.io/api/core/v1"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"
)

type checker struct {
	release string
	gates   []string
	decoder runtime.Decoder
}

func newChecker(release string) (*checker, error) {
	gates, err := os.ReadFile(filepath.Join(release, "gates"))
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(kubevirt.AddToScheme(scheme), instancetype.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	return &checker{release, strings.Fields(string(gates)), decoder}, nil
}

func (c *checker) check(document []byte) error {
	typed, kind, err := c.decoder.Decode(document, nil, nil)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := utilyaml.Unmarshal(document, &object); err != nil {
		return err
	}
	faults := []error{c.checkSchema(strings.ToLower(kind.Kind), object)}
	if settings, ok := typed.(*kubevirt.KubeVirt); ok && settings.Spec.Configuration.DeveloperConfiguration != nil {
		developer := settings.Spec.Configuration.DeveloperConfiguration
		for _, gate := range slices.Concat(developer.FeatureGates, developer.DisabledFeatureGates) {
			if !slices.Contains(c.gates, gate) {
				faults = append(faults, fmt.Errorf("unknown feature gate %q", gate))
			}
		}
	}
	return errors.Join(faults...)
}

func (c *checker) checkSchema(kind string, object map[string]any) error {
	text, err := os.ReadFile(filepath.Join(c.release, kind+".yaml"))
	if err != nil {
		return err
	}
	var published extensions.CustomResourceValidation
	if err := yaml.Unmarshal(text, &published); err != nil {
		return err
	}
	var internal apiextensions.CustomResourceValidation
	if err := extensions.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(&published, &internal, nil); err != nil {
		return err
	}
	structural, err := schema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return err
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return err
	}
	var faults []error
	for _, fault := range validation.ValidateCustomResource(nil, object, validator) {
		faults = append(faults, fault)
	}
	tracked := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range pruning.PruneWithOptions(object, structural, true, tracked) {
		faults = append(faults, fmt.Errorf("unknown field %q", path))
	}
	return errors.Join(faults...)
}

func run(release string) (right, wrong int, err error) {
	checker, err := newChecker(release)
	if err != nil {
		return 0, 0, err
	}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(os.Stdin)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return right, wrong, nil
		}
		if err != nil {
			return right, wrong, err
		}
		if err := checker.check(document); err != nil {
			wrong++
			fmt.Printf("document %d: %s\n", right+wrong, strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			right++
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kubevirt-strict RELEASE")
		os.Exit(2)
	}
	right, wrong, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubevirt-strict: %v\n", err)
		os.Exit(2)
	}
	fmt.Printf("%d documents are right, %d are not\n", right, wrong)
	if wrong > 0 || right == 0 {
		os.Exit(1)
	}
}
