package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// document is one rendered object.
type document struct {
	kind, name, text string
}

// pod is a pod template with the object that has it.
type pod struct {
	owner  document
	meta   metav1.ObjectMeta
	spec   corev1.PodSpec
	claims []corev1.PersistentVolumeClaim
}

func documents(rendered map[string]string) []document {
	var found []document
	var templates []string
	for template := range rendered {
		templates = append(templates, template)
	}
	sort.Strings(templates)
	for _, template := range templates {
		if !strings.HasSuffix(template, ".yaml") {
			continue
		}
		for _, text := range strings.Split("\n"+rendered[template], "\n---") {
			var head struct {
				Kind     string            `json:"kind"`
				Metadata metav1.ObjectMeta `json:"metadata"`
			}
			if strings.TrimSpace(text) == "" {
				continue
			}
			// A document that is no object fails when it is decoded as one.
			_ = yaml.Unmarshal([]byte(text), &head)
			found = append(found, document{head.Kind, head.Metadata.Name, strings.TrimSpace(text) + "\n"})
		}
	}
	return found
}

// examine returns what is wrong with the documents of a case. The pods of others, of which only the sidecar is ours, have to be
// `restricted` in that alone.
func examine(rendered map[string]string, expected map[string]int, ofOthers bool) []string {
	var problems []string
	all := documents(rendered)
	kinds, configs, accounts := map[string]int{}, map[string]bool{}, map[string]bool{}
	var pods []pod
	for _, it := range all {
		kinds[it.kind]++
		found, err := decode(it)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %v", it.kind, it.name, err))
		}
		pods = append(pods, found...)
		problems = append(problems, labelValues(it)...)
		configs[it.name] = configs[it.name] || it.kind == "ConfigMap"
		accounts[it.name] = accounts[it.name] || it.kind == "ServiceAccount"
	}
	for kind, number := range expected {
		if kinds[kind] != number {
			problems = append(problems, fmt.Sprintf("%d of %s, expected %d", kinds[kind], kind, number))
		}
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		return append(problems, err.Error())
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for _, it := range pods {
		checked := it.spec
		if ofOthers {
			checked.Containers = nil
		}
		for _, result := range evaluator.EvaluatePod(restricted, &it.meta, &checked) {
			if !result.Allowed {
				problems = append(problems, fmt.Sprintf("%s %s is not `restricted`: %s: %s", it.owner.kind, it.owner.name, result.ForbiddenReason, result.ForbiddenDetail))
			}
		}
		if it.owner.kind != "Pod" {
			problems = append(problems, references(it, configs, accounts)...)
		}
	}
	return append(problems, policyPorts(all, pods)...)
}

// labelValues complains about labels that the API server refuses.
func labelValues(it document) []string {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Template struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	// A document that cannot be decoded is reported by examine.
	_ = yaml.Unmarshal([]byte(it.text), &object)
	var problems []string
	for _, meta := range []metav1.ObjectMeta{object.Metadata, object.Spec.Template.Metadata} {
		for key, value := range meta.Labels {
			for _, wrong := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
				problems = append(problems, fmt.Sprintf("%s %s: label %s=%q: %s", it.kind, it.name, key, value, wrong))
			}
		}
	}
	return problems
}

// podsOf returns the pod templates of a case.
func podsOf(rendered map[string]string) []pod {
	var pods []pod
	for _, it := range documents(rendered) {
		// A document that cannot be decoded is reported by examine.
		found, _ := decode(it)
		pods = append(pods, found...)
	}
	return pods
}

// gracePeriods complains about pods with another terminationGracePeriodSeconds than the case names.
func gracePeriods(rendered map[string]string, expected []string) []string {
	var problems []string
	for _, seconds := range expected {
		for _, it := range podsOf(rendered) {
			period := it.spec.TerminationGracePeriodSeconds
			if it.owner.kind == "Pod" {
				continue
			}
			if period == nil || strconv.FormatInt(*period, 10) != seconds {
				problems = append(problems, fmt.Sprintf("%s: terminationGracePeriodSeconds is not %s", it.owner.name, seconds))
			}
		}
	}
	return problems
}

// unaffectedPods complains about pod templates that a changed value leaves as they are: their pods would keep the old configuration.
func unaffectedPods(before, after map[string]string, value string) []string {
	var problems []string
	changed := podsOf(after)
	for i, it := range podsOf(before) {
		if it.owner.kind != "Pod" && reflect.DeepEqual(it.meta, changed[i].meta) && reflect.DeepEqual(it.spec, changed[i].spec) {
			problems = append(problems, fmt.Sprintf("%s: a change of %s does not change the pod template", it.owner.name, value))
		}
	}
	return problems
}

// policyPorts complains about ports of network policies that are names, which many network plugins look up in spec.containers only, and
// about ingress to ports that the pods do not have.
func policyPorts(all []document, pods []pod) []string {
	var problems []string
	for _, it := range all {
		if it.kind != "NetworkPolicy" {
			continue
		}
		var network networkingv1.NetworkPolicy
		// A document that cannot be decoded is reported by examine.
		_ = yaml.Unmarshal([]byte(it.text), &network)
		selector, err := metav1.LabelSelectorAsSelector(&network.Spec.PodSelector)
		if err != nil {
			problems = append(problems, fmt.Sprintf("NetworkPolicy %s: %v", it.name, err))
			continue
		}
		has := map[int32]bool{}
		for _, pod := range pods {
			for _, container := range append(append([]corev1.Container{}, pod.spec.InitContainers...), pod.spec.Containers...) {
				for _, port := range container.Ports {
					has[port.ContainerPort] = has[port.ContainerPort] || selector.Matches(labels.Set(pod.meta.Labels))
				}
			}
		}
		var ports []networkingv1.NetworkPolicyPort
		for _, rule := range network.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port == nil || !has[port.Port.IntVal] {
					problems = append(problems, fmt.Sprintf("NetworkPolicy %s allows the port %v, which its pods do not have", it.name, port.Port))
				}
			}
			ports = append(ports, rule.Ports...)
		}
		for _, rule := range network.Spec.Egress {
			ports = append(ports, rule.Ports...)
		}
		for _, port := range ports {
			if port.Port != nil && port.Port.Type == intstr.String {
				problems = append(problems, fmt.Sprintf("NetworkPolicy %s has a port by name: %v", it.name, port.Port))
			}
		}
	}
	return problems
}

// containerSecurity complains about containers of keyward without a user of their own or with a root file system that they can write, and
// about others for which the chart decides that; `readOnly` names those whose values ask for it.
func containerSecurity(rendered map[string]string, readOnly []string) []string {
	var problems []string
	for _, pod := range podsOf(rendered) {
		if security := pod.spec.SecurityContext; security != nil && (security.RunAsUser != nil || security.RunAsGroup != nil) {
			problems = append(problems, pod.owner.name+": the pod sets the user of all its containers")
		}
		for _, container := range append(append([]corev1.Container{}, pod.spec.InitContainers...), pod.spec.Containers...) {
			own := strings.Contains(container.Image, "/keyward")
			security := container.SecurityContext
			if security == nil {
				if own {
					problems = append(problems, fmt.Sprintf("%s: container %s has no security context", pod.owner.name, container.Name))
				}
				continue
			}
			isReadOnly := security.ReadOnlyRootFilesystem != nil && *security.ReadOnlyRootFilesystem
			if isReadOnly != (own || slices.Contains(readOnly, container.Name)) {
				problems = append(problems, fmt.Sprintf("%s: container %s: readOnlyRootFilesystem is %t", pod.owner.name, container.Name, isReadOnly))
			}
			if own != (security.RunAsUser != nil) {
				problems = append(problems, fmt.Sprintf("%s: container %s: only keyward's own has a runAsUser", pod.owner.name, container.Name))
			}
		}
	}
	return problems
}

// references complains about mounts without a volume, and volumes and accounts that nothing renders.
func references(it pod, configs, accounts map[string]bool) []string {
	var problems []string
	volumes := map[string]bool{}
	for _, claim := range it.claims {
		volumes[claim.Name] = true
	}
	for _, volume := range it.spec.Volumes {
		volumes[volume.Name] = true
		if volume.ConfigMap != nil && !configs[volume.ConfigMap.Name] && !strings.HasPrefix(volume.ConfigMap.Name, "given-") {
			problems = append(problems, fmt.Sprintf("%s mounts the ConfigMap %s, which is not rendered", it.owner.name, volume.ConfigMap.Name))
		}
	}
	containers := append(append([]corev1.Container{}, it.spec.InitContainers...), it.spec.Containers...)
	ports := map[string]bool{}
	for _, container := range containers {
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] {
				problems = append(problems, fmt.Sprintf("%s: container %s mounts %s, which is no volume", it.owner.name, container.Name, mount.Name))
			}
		}
		for _, port := range container.Ports {
			ports[port.Name] = true
		}
	}
	for _, container := range it.spec.InitContainers {
		if container.RestartPolicy == nil || *container.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			problems = append(problems, fmt.Sprintf("%s: %s is no native sidecar", it.owner.name, container.Name))
		}
	}
	if !ports["health"] && !ports["probes"] {
		problems = append(problems, it.owner.name+": no port is called health, which the PodMonitor reads, or probes, as a sidecar's is")
	}
	if account := it.spec.ServiceAccountName; !accounts[account] && !strings.HasPrefix(account, "given-") {
		problems = append(problems, fmt.Sprintf("%s uses the service account %s, which is not rendered", it.owner.name, account))
	}
	if it.spec.AutomountServiceAccountToken == nil || *it.spec.AutomountServiceAccountToken {
		problems = append(problems, it.owner.name+" mounts a token of the API server")
	}
	return problems
}

// decode reads a document as the type of its kind: an unknown field is an error.
func decode(it document) ([]pod, error) {
	strict := func(into any) error { return yaml.UnmarshalStrict([]byte(it.text), into) }
	one := func(template corev1.PodTemplateSpec) []pod { return []pod{{it, template.ObjectMeta, template.Spec, nil}} }
	switch it.kind {
	case "StatefulSet":
		var set appsv1.StatefulSet
		err := strict(&set)
		return []pod{{it, set.Spec.Template.ObjectMeta, set.Spec.Template.Spec, set.Spec.VolumeClaimTemplates}}, err
	case "ServiceAccount":
		return nil, strict(&corev1.ServiceAccount{})
	case "ConfigMap":
		return nil, strict(&corev1.ConfigMap{})
	case "Secret":
		return nil, strict(&corev1.Secret{})
	case "Role":
		return nil, strict(&rbacv1.Role{})
	case "RoleBinding":
		return nil, strict(&rbacv1.RoleBinding{})
	case "MutatingWebhookConfiguration":
		return nil, strict(&admissionregistrationv1.MutatingWebhookConfiguration{})
	case "Service":
		return nil, strict(&corev1.Service{})
	case "NetworkPolicy":
		return nil, strict(&networkingv1.NetworkPolicy{})
	case "PodDisruptionBudget":
		return nil, strict(&policyv1.PodDisruptionBudget{})
	case "PodMonitor":
		return nil, strict(&monitoring.PodMonitor{})
	case "ServiceMonitor":
		return nil, strict(&monitoring.ServiceMonitor{})
	case "ClusterRole":
		return nil, strict(&rbacv1.ClusterRole{})
	case "ClusterRoleBinding":
		return nil, strict(&rbacv1.ClusterRoleBinding{})
	case "Pod":
		var one corev1.Pod
		err := strict(&one)
		return []pod{{it, one.ObjectMeta, one.Spec, nil}}, err
	case "PrometheusRule":
		var rules monitoring.PrometheusRule
		if err := strict(&rules); err != nil {
			return nil, err
		}
		if len(rules.Spec.Groups) == 0 || len(rules.Spec.Groups[0].Rules) == 0 {
			return nil, fmt.Errorf("it has no rule")
		}
		return nil, nil
	case "Deployment":
		var deployment appsv1.Deployment
		err := strict(&deployment)
		return one(deployment.Spec.Template), err
	case "Job":
		var job batchv1.Job
		err := strict(&job)
		return one(job.Spec.Template), err
	}
	return nil, fmt.Errorf("an object of no known kind: %.80q", it.text)
}

// expectations reads `# expect: KIND N`.
func expectations(path string) map[string]int {
	expected := map[string]int{}
	for _, text := range directive(path, "expect") {
		kind, number, _ := strings.Cut(text, " ")
		expected[kind], _ = strconv.Atoi(number)
	}
	return expected
}

// write stores the documents that Kubernetes' own schemas know, and each configuration, below a folder.
func write(folder string, rendered map[string]string) []string {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return []string{err.Error()}
	}
	var problems []string
	store := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			problems = append(problems, err.Error())
		}
	}
	for _, it := range documents(rendered) {
		if it.kind == "PodMonitor" || it.kind == "ServiceMonitor" || it.kind == "PrometheusRule" {
			continue
		}
		store(fmt.Sprintf("%s-%s.yaml", strings.ToLower(it.kind), it.name), it.text)
		if it.kind == "ConfigMap" {
			var config corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(it.text), &config); err == nil && config.Data["keyward.toml"] != "" {
				store(it.name+".toml", config.Data["keyward.toml"])
			}
		}
	}
	return problems
}
