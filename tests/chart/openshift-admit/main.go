// SPDX-License-Identifier: Apache-2.0

// openshift-admit NAMESPACE SCHEMA < MANIFESTS: admits the pods of the DaemonSets and Jobs among the manifests by OpenShift's
// own admission plugin. The cluster has the SecurityContextConstraints among the manifests, and those that each OpenShift has.
// SCHEMA is the custom resource of SecurityContextConstraints. Prints a line "POD: CONSTRAINTS GROUPS" each, with the
// supplementary groups that the pod then has, or "POD: refused: REASON".
// Status 0: all are admitted; 1: some are not; 2: something cannot be read.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	securityv1 "github.com/openshift/api/security/v1"
	"github.com/openshift/apiserver-library-go/pkg/securitycontextconstraints/sccadmission"
	"github.com/openshift/apiserver-library-go/pkg/securitycontextconstraints/sccdefaults"
	securitylisters "github.com/openshift/client-go/security/listers/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	sigsyaml "sigs.k8s.io/yaml"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintf(os.Stderr, "openshift-admit: %v\n", err)
		os.Exit(2)
	}
	return value
}

type pod struct {
	name    string
	creator string // the controller's account in kube-system
	spec    corev1.PodTemplateSpec
}

// Holds objects against the schema of their custom resource.
type checker struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

func newChecker(file string) checker {
	var published extensions.CustomResourceDefinition
	must(0, sigsyaml.Unmarshal(must(os.ReadFile(file)), &published))
	var internal apiextensions.CustomResourceValidation
	must(0, extensions.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		published.Spec.Versions[0].Schema, &internal, nil))
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	return checker{must(validator, err), must(schema.NewStructural(internal.OpenAPIV3Schema))}
}

func (c checker) check(object map[string]any) error {
	faults := validation.ValidateCustomResource(nil, object, c.validator).ToAggregate()
	tracked := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if unknown := pruning.PruneWithOptions(object, c.structural, true, tracked); len(unknown) > 0 {
		return fmt.Errorf("unknown fields %q", unknown)
	}
	if faults != nil {
		return faults
	}
	return nil
}

func read(manifests io.Reader, of checker) (pods []pod, constraints []*securityv1.SecurityContextConstraints) {
	for reader := yaml.NewYAMLReader(bufio.NewReader(manifests)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return pods, constraints
		}
		text := must(sigsyaml.YAMLToJSONStrict(must(document, err)))
		var object map[string]any
		must(0, json.Unmarshal(text, &object))
		switch object["kind"] {
		case "SecurityContextConstraints":
			must(0, of.check(object))
			one := &securityv1.SecurityContextConstraints{}
			must(0, json.Unmarshal(text, one))
			constraints = append(constraints, one)
		case "DaemonSet":
			one := must(runtime.Decode(legacyscheme.Codecs.UniversalDeserializer(), text)).(*appsv1.DaemonSet)
			pods = append(pods, pod{one.Name, "daemon-set-controller", one.Spec.Template})
		case "Job":
			one := must(runtime.Decode(legacyscheme.Codecs.UniversalDeserializer(), text)).(*batchv1.Job)
			pods = append(pods, pod{one.Name, "job-controller", one.Spec.Template})
		}
	}
}

// The constraints without which the plugin admits nothing. Two have their rules: restricted-v2, which everyone may use, and
// privileged, which would admit each pod. No account of the manifests is granted one of the others.
func standard() (out []*securityv1.SecurityContextConstraints) {
	for _, name := range []string{"anyuid", "hostaccess", "hostmount-anyuid", "hostnetwork", "hostnetwork-v2", "nonroot", "nonroot-v2",
		"privileged", "restricted", "restricted-v2"} {
		one := &securityv1.SecurityContextConstraints{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			Volumes:        []securityv1.FSType{securityv1.FSTypeNone},
			RunAsUser:      securityv1.RunAsUserStrategyOptions{Type: securityv1.RunAsUserStrategyRunAsAny},
			SELinuxContext: securityv1.SELinuxContextStrategyOptions{Type: securityv1.SELinuxStrategyRunAsAny},
		}
		switch name {
		case "privileged":
			one.AllowPrivilegedContainer, one.AllowHostDirVolumePlugin = true, true
			one.AllowHostNetwork, one.AllowHostPorts, one.AllowHostPID, one.AllowHostIPC = true, true, true, true
			one.AllowedCapabilities = []corev1.Capability{securityv1.AllowAllCapabilities}
			one.Volumes = []securityv1.FSType{securityv1.FSTypeAll}
			one.SeccompProfiles = []string{"*"}
		case "restricted-v2":
			escalation := false
			one.AllowPrivilegeEscalation = &escalation
			one.RequiredDropCapabilities = []corev1.Capability{"ALL"}
			one.AllowedCapabilities = []corev1.Capability{"NET_BIND_SERVICE"}
			one.Volumes = []securityv1.FSType{securityv1.FSTypeConfigMap, securityv1.FSTypeCSI, securityv1.FSTypeDownwardAPI,
				securityv1.FSTypeEmptyDir, securityv1.FSTypeEphemeral, securityv1.FSTypePersistentVolumeClaim, securityv1.FSProjected,
				securityv1.FSTypeSecret}
			one.SeccompProfiles = []string{corev1.SeccompProfileRuntimeDefault}
			one.RunAsUser.Type = securityv1.RunAsUserStrategyMustRunAsRange
			one.SELinuxContext.Type = securityv1.SELinuxStrategyMustRunAs
			one.FSGroup.Type = securityv1.FSGroupStrategyMustRunAs
			one.Groups = []string{"system:authenticated"}
		}
		out = append(out, one)
	}
	return out
}

// An informer that has its objects, and asks no API server for them.
type filled struct{ cache.SharedIndexInformer }

func (filled) HasSynced() bool { return true }

func informer(kind runtime.Object, objects ...runtime.Object) filled {
	out := filled{cache.NewSharedIndexInformer(&cache.ListWatch{}, kind, 0, cache.Indexers{})}
	for _, one := range objects {
		must(0, out.GetIndexer().Add(one))
	}
	return out
}

type constraintsInformer struct{ filled }

func (c constraintsInformer) Informer() cache.SharedIndexInformer { return c.filled }
func (c constraintsInformer) Lister() securitylisters.SecurityContextConstraintsLister {
	return securitylisters.NewSecurityContextConstraintsLister(c.GetIndexer())
}

type plugin interface {
	admission.MutationInterface
	admission.ValidationInterface
	sccadmission.WantsSecurityInformer
	SetExternalKubeInformerFactory(informers.SharedInformerFactory)
	SetAuthorizer(authorizer.Authorizer)
}

func newPlugin(space string, constraints []*securityv1.SecurityContextConstraints) plugin {
	var all []runtime.Object
	for _, one := range constraints {
		sccdefaults.SetDefaults_SCC(one)
		all = append(all, one)
	}
	// OpenShift itself annotates each namespace.
	ofSpaces := informer(&corev1.Namespace{}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space, Annotations: map[string]string{
		securityv1.UIDRangeAnnotation: "1000660000/10000", securityv1.MCSAnnotation: "s0:c26,c5",
		securityv1.SupplementalGroupsAnnotation: "1000660000/10000"}}})
	factory := informers.NewSharedInformerFactory(nil, 0)
	factory.InformerFor(&corev1.Namespace{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return ofSpaces })

	var made plugin = sccadmission.NewConstraint()
	made.SetSecurityInformers(constraintsInformer{informer(&securityv1.SecurityContextConstraints{}, all...)})
	made.SetExternalKubeInformerFactory(factory)
	// No role grants one.
	made.SetAuthorizer(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	}))
	must(0, made.ValidateInitialization())
	return made
}

// As the API server has the pod when the plugin sees it: with defaults, and with the volume of its token.
func object(space string, from pod) *core.Pod {
	one := &corev1.Pod{ObjectMeta: from.spec.ObjectMeta, Spec: from.spec.Spec}
	one.Namespace, one.GenerateName = space, from.name+"-"
	if token := one.Spec.AutomountServiceAccountToken; token == nil || *token {
		one.Spec.Volumes = append(one.Spec.Volumes, corev1.Volume{Name: "kube-api-access",
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}})
	}
	legacyscheme.Scheme.Default(one)
	out := &core.Pod{}
	must(0, legacyscheme.Scheme.Convert(one, out, nil))
	return out
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openshift-admit NAMESPACE SCHEMA < MANIFESTS")
		os.Exit(2)
	}
	space := os.Args[1]
	pods, constraints := read(os.Stdin, newChecker(os.Args[2]))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	admitting := newPlugin(space, append(standard(), constraints...))
	status := 0
	for _, one := range pods {
		asked := object(space, one)
		creator := serviceaccount.UserInfo("kube-system", one.creator, "")
		attributes := func() admission.Attributes {
			return admission.NewAttributesRecord(asked, nil, core.Kind("Pod").WithVersion("version"), space, "",
				core.Resource("pods").WithVersion("version"), "", admission.Create, nil, false, creator)
		}
		err := admitting.Admit(ctx, attributes(), nil)
		if err == nil {
			err = admitting.Validate(ctx, attributes(), nil)
		}
		if err != nil {
			status = 1
			fmt.Printf("%s: refused: %s\n", one.name, strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		groups := asked.Spec.SecurityContext.SupplementalGroups
		fmt.Printf("%s: %s %v\n", one.name, asked.Annotations[securityv1.ValidatedSCCAnnotation], groups)
	}
	os.Exit(status)
}
