// Applies the injector's patches to pods by the library of the API server, sets the defaults of Kubernetes, validates the results by its
// code, and expands the variables of the added container as the kubelet does. Prints the fixture with the results.
//
//	injected-pods FIXTURE
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// fixture holds the pods of the tests.
type fixture struct {
	Kubernetes string `json:"kubernetes"`
	Cases      []*one `json:"cases"`
}

// one is a pod with its patch, and the results of Kubernetes.
type one struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Pod       json.RawMessage `json:"pod"`
	Patch     json.RawMessage `json:"patch"`
	// Errors of the validation.
	Invalid []string `json:"invalid"`
	// Checks of Pod Security `restricted` that the pod fails after the patch, and did not before.
	Unrestricted []string `json:"unrestricted"`
	// Variables of the added container, as its process sees them.
	Variables map[string]string `json:"variables"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: injected-pods FIXTURE")
	}
	content, err := os.ReadFile(os.Args[1])
	check(err)
	var all fixture
	check(json.Unmarshal(content, &all))
	all.Kubernetes = version
	for _, it := range all.Cases {
		it.examine()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	check(encoder.Encode(all))
	_, err = os.Stdout.Write(text.Bytes())
	check(err)
}

// version is that of the modules in go.mod.
const version = "1.34.3"

func (it *one) examine() {
	it.Invalid, it.Unrestricted, it.Variables = []string{}, []string{}, map[string]string{}
	before := decode(it.Pod)
	patch, err := jsonpatch.DecodePatch(it.Patch)
	check(err)
	patched, err := patch.Apply(it.Pod)
	if err != nil {
		it.Invalid = append(it.Invalid, "the patch: "+err.Error())
		return
	}
	after := decode(patched)
	it.Invalid = append(it.Invalid, validate(after.DeepCopy(), it.Namespace)...)
	had := map[string]bool{}
	for _, failed := range unrestricted(before) {
		had[failed] = true
	}
	for _, failed := range unrestricted(after) {
		if !had[failed] {
			it.Unrestricted = append(it.Unrestricted, failed)
		}
	}
	for _, container := range after.Spec.InitContainers {
		if container.Name == "keyward" {
			it.Variables = variables(container)
		}
	}
}

// decode reads a pod. A field that Kubernetes does not have is an error.
func decode(text []byte) *corev1.Pod {
	var pod corev1.Pod
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	check(decoder.Decode(&pod))
	return &pod
}

// validate returns the errors with which the API server refuses a pod.
func validate(pod *corev1.Pod, namespace string) []string {
	pod.Namespace = namespace
	if pod.Name == "" {
		pod.Name = pod.GenerateName + "abcde"
	}
	conversion.SetObjectDefaults_Pod(pod)
	var internal core.Pod
	check(conversion.Convert_v1_Pod_To_core_Pod(pod, &internal, nil))
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	errors := []string{}
	for _, err := range validation.ValidatePodCreate(&internal, options) {
		errors = append(errors, err.Error())
	}
	return errors
}

func unrestricted(pod *corev1.Pod) []string {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	check(err)
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	failed := []string{}
	for _, result := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			failed = append(failed, result.ForbiddenReason+": "+result.ForbiddenDetail)
		}
	}
	sort.Strings(failed)
	return failed
}

// variables returns the variables of a container as the kubelet makes them.
func variables(container corev1.Container) map[string]string {
	found := map[string]string{}
	mapping := expansion.MappingFuncFor(found)
	for _, variable := range container.Env {
		found[variable.Name] = expansion.Expand(variable.Value, mapping)
	}
	return found
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "injected-pods: "+text)
	os.Exit(1)
}
