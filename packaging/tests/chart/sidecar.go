package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// examineManifests checks files of documents, whose pods are those of others with our sidecar.
func examineManifests(paths []string) {
	failed := 0
	for _, path := range paths {
		content, err := os.ReadFile(path)
		problems := []string{}
		if err != nil {
			problems = append(problems, err.Error())
		} else {
			manifest := map[string]string{path: string(content)}
			problems = append(examine(manifest, nil, true), containerSecurity(manifest, nil)...)
			problems = append(problems, hardening(manifest)...)
		}
		for _, problem := range problems {
			failed++
			fmt.Fprintf(os.Stderr, "pods: %s: %s\n", path, problem)
		}
	}
	if failed > 0 || len(paths) == 0 {
		os.Exit(1)
	}
	fmt.Printf("pods: %d manifests\n", len(paths))
}

// hardening complains about what the pod decides for the application's container.
func hardening(manifest map[string]string) []string {
	var problems []string
	for _, it := range podsOf(manifest) {
		expected := &corev1.PodSecurityContext{SupplementalGroups: []int64{65532}}
		if !reflect.DeepEqual(it.spec.SecurityContext, expected) {
			problems = append(problems, fmt.Sprintf("%s: the pod has a security context for all containers: %v", it.owner.name, it.spec.SecurityContext))
		}
		for _, container := range it.spec.Containers {
			if container.SecurityContext != nil {
				problems = append(problems, fmt.Sprintf("%s: container %s has a security context", it.owner.name, container.Name))
			}
		}
	}
	return problems
}

// sidecarOf returns what keyward has in a pod: its container, without image and identifiers, its volumes, and the application's mounts.
func sidecarOf(it pod) (map[string]any, error) {
	if len(it.spec.InitContainers) != 1 || len(it.spec.Containers) != 1 {
		return nil, fmt.Errorf("%s has not one sidecar and one application", it.owner.name)
	}
	container := *it.spec.InitContainers[0].DeepCopy()
	container.Image, container.ImagePullPolicy = "", ""
	for i := range container.Env {
		if !strings.HasPrefix(container.Env[i].Value, "/") {
			container.Env[i].Value = ""
		}
	}
	volumes := []corev1.Volume{}
	for _, volume := range it.spec.Volumes {
		volume = *volume.DeepCopy()
		if volume.ConfigMap != nil {
			volume.ConfigMap.Name = ""
		}
		volumes = append(volumes, volume)
	}
	return map[string]any{
		"container": container, "volumes": volumes, "mounts": it.spec.Containers[0].VolumeMounts,
		"pod": it.spec.SecurityContext,
	}, nil
}

// sameSidecar complains about a sidecar that differs from that of a manifest.
func sameSidecar(rendered map[string]string, path string) []string {
	content, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	ours, theirs := podsOf(rendered), podsOf(map[string]string{path: string(content)})
	if len(ours) != 1 || len(theirs) != 1 {
		return []string{fmt.Sprintf("%d pods, and %d in %s", len(ours), len(theirs), path)}
	}
	rendering, err := sidecarOf(ours[0])
	if err != nil {
		return []string{err.Error()}
	}
	expected, err := sidecarOf(theirs[0])
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for key := range expected {
		if !reflect.DeepEqual(rendering[key], expected[key]) {
			a, _ := yaml.Marshal(rendering[key])
			b, _ := yaml.Marshal(expected[key])
			problems = append(problems, fmt.Sprintf("%s differs from %s:\n%s\n%s", key, path, a, b))
		}
	}
	return problems
}

// texts complains about texts that the rendered documents should have, or should not.
func texts(rendered map[string]string, has, lacks []string) []string {
	var whole strings.Builder
	for _, it := range documents(rendered) {
		whole.WriteString(it.text)
	}
	var problems []string
	for _, text := range has {
		if !strings.Contains(whole.String(), text) {
			problems = append(problems, "it lacks "+text)
		}
	}
	for _, text := range lacks {
		if strings.Contains(whole.String(), text) {
			problems = append(problems, "it has "+text)
		}
	}
	return problems
}

// undocumented complains about values that the chart's README does not name, and about names there that are no values.
func undocumented(chart string) []string {
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return []string{err.Error()}
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		return []string{err.Error()}
	}
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		return []string{err.Error()}
	}
	named := map[string]bool{}
	for _, line := range strings.Split(string(readme), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i, part := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				for _, component := range []string{"acl", "gateway", "webhook"} {
					named[strings.Replace(part, "COMPONENT", component, 1)] = true
				}
			}
		}
	}
	var problems []string
	leaves := map[string]bool{}
	collectLeaves("", values, leaves)
	// Values in common that one component lacks.
	for _, name := range []string{"webhook.extraConfig", "webhook.terminationGracePeriodSeconds"} {
		delete(named, name)
	}
	for leaf := range leaves {
		if !named[leaf] {
			problems = append(problems, "the value "+leaf+" is not explained")
		}
	}
	for name := range named {
		if !leaves[name] {
			problems = append(problems, name+" is explained, and is no value")
		}
	}
	return problems
}

// collectLeaves collects the paths of values. Resources are one value.
func collectLeaves(path string, value any, leaves map[string]bool) {
	table, isTable := value.(map[string]any)
	if !isTable || len(table) == 0 || strings.HasSuffix(path, ".resources") || strings.HasSuffix(path, "Selector") {
		leaves[strings.TrimPrefix(path, ".")] = true
		return
	}
	for key, inner := range table {
		collectLeaves(path+"."+key, inner, leaves)
	}
}
