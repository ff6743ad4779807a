// Renders the charts of packaging/helm by Helm's own engine, for each file of values in a folder, and checks what comes out: Pod
// Security `restricted` by the checks of Kubernetes, the operator of Prometheus by its types, references between objects. Writes
// documents for Kubernetes' schemas, and configurations for `keyward check`.
//
//	chart HELM_FOLDER CASES REFUSED OUT
//	chart pods FILE...        the same checks of manifests, as `keyward init aks` writes them
//
// A file of values may begin with lines `# chart: example`, `# expect: KIND N`, `# read-only: CONTAINER`, `# grace: SECONDS`,
// `# restarts: VALUE`, `# version: VERSION` of the chart, `# pods: of others` (which are not `restricted`), `# has: TEXT`, `# lacks: TEXT`,
// `# sidecar: FILE` with the manifest whose sidecar it has and, in REFUSED, `# error: TEXT`.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "pods" {
		examineManifests(os.Args[2:])
		return
	}
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: chart HELM_FOLDER CASES REFUSED OUT")
		os.Exit(1)
	}
	helm, cases, refused, out := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	failed := 0
	complain := func(name string, problems []string) {
		for _, problem := range problems {
			failed++
			fmt.Fprintf(os.Stderr, "chart: %s: %s\n", name, problem)
		}
	}
	rendered, denied := 0, 0
	for _, path := range yamlFiles(cases) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		text, err := render(helm, path)
		if err != nil {
			complain(name, []string{err.Error()})
			continue
		}
		complain(name, examine(text, expectations(path), len(directive(path, "pods")) > 0))
		complain(name, texts(text, directive(path, "has"), directive(path, "lacks")))
		for _, manifest := range directive(path, "sidecar") {
			complain(name, sameSidecar(text, filepath.Join(helm, manifest)))
		}
		complain(name, containerSecurity(text, directive(path, "read-only")))
		complain(name, gracePeriods(text, directive(path, "grace")))
		for _, value := range directive(path, "restarts") {
			changed, err := render(helm, path, value+"=changed")
			if err != nil {
				complain(name, []string{err.Error()})
				continue
			}
			complain(name, unaffectedPods(text, changed, value))
		}
		complain(name, write(filepath.Join(out, name), text))
		rendered++
	}
	complain("README.md", undocumented(filepath.Join(helm, "keyward")))
	for _, path := range yamlFiles(refused) {
		name := "refused/" + strings.TrimSuffix(filepath.Base(path), ".yaml")
		wanted := directive(path, "error")
		_, err := render(helm, path)
		switch {
		case len(wanted) != 1:
			complain(name, []string{"the file does not say `# error: TEXT`"})
		case err == nil:
			complain(name, []string{"it is rendered, and should be refused: " + wanted[0]})
		case !strings.Contains(err.Error(), wanted[0]):
			complain(name, []string{fmt.Sprintf("it is refused by %q instead of %q", err, wanted[0])})
		}
		denied++
	}
	if failed > 0 || rendered == 0 || denied == 0 {
		fmt.Fprintf(os.Stderr, "chart: %d problems\n", failed)
		os.Exit(1)
	}
	fmt.Printf("chart: %d sets of values rendered, %d refused\n", rendered, denied)
}

// render renders the chart that a file of values names, with changes such as `acl.replicas=3`, and returns its documents by template.
func render(helm, path string, changes ...string) (map[string]string, error) {
	loaded, err := load(helm, path)
	if err != nil {
		return nil, err
	}
	values, err := chartutil.ReadValuesFile(path)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		if err := strvals.ParseInto(change, values); err != nil {
			return nil, err
		}
	}
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "web", Namespace: "team", Revision: 1, IsInstall: true}
	whole, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: false, LintMode: false}.Render(loaded, whole)
}

func load(helm, path string) (*chart.Chart, error) {
	keyward, err := loader.LoadDir(filepath.Join(helm, "keyward"))
	if err != nil {
		return nil, err
	}
	for _, version := range directive(path, "version") {
		keyward.Metadata.Version, keyward.Metadata.AppVersion = version, version
	}
	names := directive(path, "chart")
	if len(names) == 0 {
		return keyward, nil
	}
	other, err := loader.LoadDir(filepath.Join(helm, names[0]))
	if err != nil {
		return nil, err
	}
	// The same as `helm dependency build`.
	other.AddDependency(keyward)
	return other, nil
}

// directive returns the texts of the lines `# NAME: TEXT` at the beginning of a file.
func directive(path, name string) []string {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var found []string
	for _, line := range strings.Split(string(content), "\n") {
		if !strings.HasPrefix(line, "#") {
			break
		}
		if text, ok := strings.CutPrefix(line, "# "+name+": "); ok {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}

func yamlFiles(folder string) []string {
	found, _ := filepath.Glob(filepath.Join(folder, "*.yaml"))
	sort.Strings(found)
	return found
}
