package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// install renders the chart by Helm's engine and creates its objects, with the strict checks of unknown fields.
func (m *machine) install(path, namespace string, values map[string]any) (int, error) {
	loaded, err := loader.Load(path)
	if err != nil {
		return 0, err
	}
	release := chartutil.ReleaseOptions{Name: "keyward", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return 0, err
	}
	rendered, err := engine.Render(loaded, all)
	if err != nil {
		return 0, err
	}
	var objects []*unstructured.Unstructured
	for name, text := range rendered {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		found, err := decode(text)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	sort.SliceStable(objects, func(a, b int) bool { return order(objects[a]) < order(objects[b]) })
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(m.client.Discovery()))
	created := 0
	for _, it := range objects {
		if it.GetAnnotations()["helm.sh/hook"] == "test" {
			continue
		}
		kind := it.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return created, err
		}
		resource := m.objects.Resource(mapping.Resource)
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if mapping.Scope.Name() == "namespace" {
			_, err = resource.Namespace(namespace).Create(context.Background(), it, options)
		} else {
			_, err = resource.Create(context.Background(), it, options)
		}
		if err != nil {
			return created, fmt.Errorf("create %s %s: %w", kind.Kind, it.GetName(), err)
		}
		created++
	}
	return created, nil
}

func decode(text string) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		it := &unstructured.Unstructured{}
		switch err := decoder.Decode(&it.Object); {
		case err == io.EOF:
			return found, nil
		case err != nil:
			return nil, err
		case it.GetKind() != "":
			found = append(found, it)
		}
	}
}

// order puts what others need first, as Helm does.
func order(it *unstructured.Unstructured) int {
	for position, kind := range []string{"ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service"} {
		if it.GetKind() == kind {
			return position
		}
	}
	return 100
}
