// SPDX-License-Identifier: Apache-2.0

// k8s-admit CASES < MANIFESTS: evaluates the ValidatingAdmissionPolicies among the manifests as the API server does, by
// its own code, for each request of a table (tests/chart/admission.yaml). Offline. Status 0: each verdict is the table's;
// 1: some are not; 2: something cannot be read or compiled.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"
)

type request struct {
	Name      string         `json:"name"`
	User      string         `json:"user"`
	Node      string         `json:"node"` // of the pod that the token was made for; empty: it says none
	Operation string         `json:"operation"`
	Before    map[string]any `json:"before"` // a Node, an Event, or of a kind that Kubernetes itself has not
	After     map[string]any `json:"after"`
	Denied    string         `json:"denied"` // part of the message; empty: it is allowed
}

type policy struct {
	spec      v1.ValidatingAdmissionPolicySpec
	validator validating.Validator
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintf(os.Stderr, "k8s-admit: %v\n", err)
		os.Exit(2)
	}
	return value
}

// As the API server's plugin compiles them.
func compile(one *v1.ValidatingAdmissionPolicy) policy {
	compiler := must(cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))
	known := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	for _, variable := range one.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: variable.Name, Expression: variable.Expression})
	}
	compiler.CompileAndStoreVariables(variables, known, environment.StoredExpressions)
	var conditions, validations []cel.ExpressionAccessor
	for i := range one.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&one.Spec.MatchConditions[i]))
	}
	for _, validation := range one.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{
			Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason})
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, known, environment.StoredExpressions),
		one.Spec.FailurePolicy, "policy", "validate", one.Name)
	validator := validating.NewValidator(compiler.CompileCondition(validations, known, environment.StoredExpressions), matcher,
		compiler.CompileCondition(nil, known, environment.StoredExpressions),
		compiler.CompileCondition(nil, cel.OptionalVariableDeclarations{}, environment.StoredExpressions),
		one.Spec.FailurePolicy, nil)
	return policy{one.Spec, validator}
}

func policies(manifests io.Reader) (out []policy) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(manifests)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if !bytes.Contains(must(document, err), []byte("kind: ValidatingAdmissionPolicy\n")) {
			continue
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		out = append(out, compile(must(object, err).(*v1.ValidatingAdmissionPolicy)))
	}
}

func typed(content map[string]any) runtime.Object {
	if content == nil {
		return nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(must(sigsyaml.Marshal(content)), nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return &unstructured.Unstructured{Object: content}
	}
	return must(object, err)
}

func matches(rules []v1.NamedRuleWithOperations, resource string, operation string) bool {
	return slices.ContainsFunc(rules, func(rule v1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.Resources, resource) && slices.Contains(rule.Operations, v1.OperationType(operation))
	})
}

// What the policies say against it: nothing where it is allowed.
func verdict(all []policy, asked request) (denials []string) {
	before, after := typed(asked.Before), typed(asked.After)
	kind := schema.FromAPIVersionAndKind(asked.After["apiVersion"].(string), asked.After["kind"].(string))
	resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	extra := map[string][]string{}
	if asked.Node != "" {
		extra["authentication.kubernetes.io/node-name"] = []string{asked.Node}
	}
	meta := after.(metav1.Object)
	attributes := admission.NewAttributesRecord(after, before, kind, meta.GetNamespace(), meta.GetName(), resource, "",
		admission.Operation(asked.Operation), nil, false, &user.DefaultInfo{Name: asked.User, Extra: extra})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: after,
		VersionedOldObject: before}
	for _, one := range all {
		if !matches(one.spec.MatchConstraints.ResourceRules, resource.Resource, asked.Operation) {
			continue
		}
		result := one.validator.Validate(context.Background(), resource, versioned, nil, nil,
			celconfig.RuntimeCELCostBudget, nil)
		for _, decision := range result.Decisions {
			if decision.Action != validating.ActionAdmit {
				denials = append(denials, decision.Message)
			}
		}
	}
	return denials
}

func main() {
	var cases []request
	if err := sigsyaml.UnmarshalStrict(must(os.ReadFile(os.Args[1])), &cases); err != nil {
		must(0, err)
	}
	all := policies(os.Stdin)
	bad := 0
	for _, one := range cases {
		denials := verdict(all, one)
		right := len(denials) == 0
		if one.Denied != "" {
			right = len(denials) > 0 && strings.Contains(strings.Join(denials, "\n"), one.Denied)
		}
		if !right {
			bad++
			fmt.Printf("%s: wanted %q, found %q\n", one.Name, one.Denied, denials)
		}
	}
	fmt.Printf("%d policies, %d requests, %d verdicts are not as they should be\n", len(all), len(cases), bad)
	if bad > 0 || len(all) == 0 || len(cases) == 0 {
		os.Exit(1)
	}
}
