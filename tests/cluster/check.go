package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shop is the namespace of the pods, in which the API server enforces Pod Security `restricted`.
const shop = "shop"

// check runs everything, prints a line for each check, and returns the exit code.
func check(program, chart string) int {
	folder, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	m := &machine{folder: folder}
	err = m.checks(program, chart)
	m.stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		for _, name := range []string{"acl", "webhook", "api-server", "controllers"} {
			fmt.Fprintf(os.Stderr, "--- the last lines of %s\n%s", name, m.lastLines(name))
		}
	}
	_ = os.RemoveAll(folder)
	if err != nil {
		return 1
	}
	return 0
}

func (m *machine) lastLines(name string) string {
	text, err := os.ReadFile(m.folder + "/" + name + ".log")
	if err != nil {
		return err.Error() + "\n"
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "")
}

func (m *machine) checks(program, chart string) error {
	if err := m.startKubernetes(); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}
	created, err := m.install(chart, namespace, map[string]any{
		"image":   map[string]any{"repository": "registry.example.com/keyward"},
		"webhook": map[string]any{"enabled": true, "replicas": 1, "address": "https://vault.example.com:8200", "caConfigMap": "vault-ca"},
	})
	if err != nil {
		return err
	}
	fmt.Printf("cluster: Kubernetes %s took the chart's %d objects\n", version(), created)
	it, err := m.placeWebhook(program)
	if err != nil {
		return err
	}
	if err := m.run(it); err != nil {
		return err
	}
	if err := await("the CA bundle", func() error { _, err := m.authority(); return err }); err != nil {
		return err
	}
	if err := m.mayNot(it.pod.Spec.ServiceAccountName); err != nil {
		return fmt.Errorf("the webhook's service account: %w", err)
	}
	fmt.Println("cluster: the webhook runs with the rights of its service account, and has no others")
	for _, step := range []struct {
		name string
		run  func(*webhook) error
	}{
		{"pods of a Deployment, a StatefulSet, a Job and a CronJob get keyward", m.owners},
		{"annotations of the Vault Agent injector work", m.vaultAnnotations},
		{"a pod without annotations stays as it is", m.plain},
		{"a wrong template is refused, and the ReplicaSet's event says why", m.refused},
		{"without the webhook, pods that ask for keyward are refused, and others start", m.withoutWebhook},
		{"a webhook that starts again keeps its certificate", m.again},
		{"an emptied Secret gets another certificate, and the API server trusts it", m.emptied},
		{"a foreign CA bundle is replaced while the webhook runs", m.foreignBundle},
	} {
		if err := step.run(it); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Println("cluster:", step.name)
	}
	if err := m.serviceAccounts(program); err != nil {
		return fmt.Errorf("service accounts at the ACL server: %w", err)
	}
	fmt.Println("cluster: a service account logs in at the ACL server while the cluster accepts its token")
	return nil
}

// version is that of the Kubernetes that is linked in; its build would have set it.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, it := range info.Deps {
		if it.Path == "k8s.io/kubernetes" {
			return it.Version
		}
	}
	return "of an unknown version"
}

// prepare creates what the chart and the pods need.
func (m *machine) prepare() error {
	ctx, core := context.Background(), m.client.CoreV1()
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	for _, name := range []string{namespace, shop} {
		it := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: restricted}}
		if _, err := core.Namespaces().Create(ctx, it, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	// The CA of this server stands for that of Vault.
	return await("the CA of the API server in the namespace", func() error {
		root, err := core.ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "vault-ca"}, Data: map[string]string{"ca.crt": root.Data["ca.crt"]}}
		_, err = core.ConfigMaps(namespace).Create(ctx, bundle, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		_, err = core.ServiceAccounts(shop).Create(ctx, account, metav1.CreateOptions{})
		return err
	})
}

func annotations(more ...string) map[string]string {
	all := map[string]string{"keyward.dev/inject": "true", "keyward.dev/role": "web", "keyward.dev/secret-database.json": "secret/data/web/database"}
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// template is a pod that is `restricted` by itself.
func template(app string, annotations map[string]string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	yes, no := true, false
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: annotations},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web", RestartPolicy: restart,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1.0.0", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
		},
	}
}

// pod waits for a pod of an app, as the API server stored them.
func (m *machine) pod(app string) (*corev1.Pod, error) {
	var found *corev1.Pod
	return found, await("a pod of "+app, func() error {
		pods, err := m.client.CoreV1().Pods(shop).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("there is none")
		}
		found = &pods.Items[0]
		return nil
	})
}

// injected returns an error if a stored pod does not have keyward as a native sidecar whose files its container sees.
func injected(it *corev1.Pod) error {
	last := len(it.Spec.InitContainers) - 1
	if last < 0 || it.Spec.InitContainers[last].Name != "keyward" {
		return errors.New("keyward is not its last init container")
	}
	sidecar := it.Spec.InitContainers[last]
	if sidecar.RestartPolicy == nil || *sidecar.RestartPolicy != corev1.ContainerRestartPolicyAlways || sidecar.StartupProbe == nil {
		return errors.New("keyward is no native sidecar with a startup probe")
	}
	if it.Annotations["keyward.dev/status"] != "injected" {
		return fmt.Errorf("its status is %q", it.Annotations["keyward.dev/status"])
	}
	files := false
	for _, mount := range it.Spec.Containers[0].VolumeMounts {
		files = files || mount.Name == "keyward-files" && mount.ReadOnly
		if mount.Name != "keyward-files" && strings.HasPrefix(mount.Name, "keyward") {
			return fmt.Errorf("its container sees %s", mount.Name)
		}
	}
	if !files {
		return errors.New("its container does not see keyward-files, read-only")
	}
	return nil
}

func (m *machine) owners(*webhook) error {
	ctx, apps, batch := context.Background(), m.client.AppsV1(), m.client.BatchV1()
	meta := func(app string) (metav1.ObjectMeta, *metav1.LabelSelector) {
		return metav1.ObjectMeta{Name: app}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	name, selector := meta("deployment")
	if _, err := apps.Deployments(shop).Create(ctx, &appsv1.Deployment{ObjectMeta: name, Spec: appsv1.DeploymentSpec{
		Selector: selector, Template: template("deployment", annotations(), corev1.RestartPolicyAlways)}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	name, selector = meta("stateful-set")
	if _, err := apps.StatefulSets(shop).Create(ctx, &appsv1.StatefulSet{ObjectMeta: name, Spec: appsv1.StatefulSetSpec{
		Selector: selector, Template: template("stateful-set", annotations(), corev1.RestartPolicyAlways)}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	name, _ = meta("job")
	if _, err := batch.Jobs(shop).Create(ctx, &batchv1.Job{ObjectMeta: name, Spec: batchv1.JobSpec{
		Template: template("job", annotations(), corev1.RestartPolicyNever)}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	name, _ = meta("cron-job")
	if _, err := batch.CronJobs(shop).Create(ctx, &batchv1.CronJob{ObjectMeta: name, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: template("cron-job", annotations(), corev1.RestartPolicyNever)}}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, app := range []string{"deployment", "stateful-set", "job", "cron-job"} {
		found, err := m.pod(app)
		if err == nil {
			err = injected(found)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", app, err)
		}
	}
	return nil
}

// create creates a pod by itself.
func (m *machine) create(name string, annotations map[string]string) (*corev1.Pod, error) {
	made := template(name, annotations, corev1.RestartPolicyNever)
	made.Name = name
	return m.client.CoreV1().Pods(shop).Create(context.Background(), &corev1.Pod{ObjectMeta: made.ObjectMeta, Spec: made.Spec}, metav1.CreateOptions{})
}

func (m *machine) vaultAnnotations(*webhook) error {
	made, err := m.create("vault", map[string]string{"vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "web",
		"vault.hashicorp.com/agent-inject-secret-database.json": "secret/data/web/database"})
	if err != nil {
		return err
	}
	if status := made.Annotations["vault.hashicorp.com/agent-inject-status"]; status != "injected" {
		return fmt.Errorf("the injector's status is %q", status)
	}
	return injected(made)
}

func (m *machine) plain(*webhook) error {
	made, err := m.create("plain", nil)
	if err != nil {
		return err
	}
	if len(made.Spec.InitContainers) > 0 || len(made.Annotations) > 0 {
		return errors.New("it has changed")
	}
	return nil
}

func (m *machine) refused(*webhook) error {
	ctx := context.Background()
	const wrong = "{{ with secrt \"secret/data/web/database\" }}{{ end }}"
	bad := annotations("keyward.dev/template-database.json", wrong)
	if _, err := m.create("wrong", bad); err == nil || !strings.Contains(err.Error(), "did you mean secret?") {
		return fmt.Errorf("the answer is %v", err)
	}
	_, err := m.client.AppsV1().Deployments(shop).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "wrong"}},
		Template: template("wrong", bad, corev1.RestartPolicyAlways)}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await("an event of the ReplicaSet", func() error {
		events, err := m.client.CoreV1().Events(shop).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ReplicaSet,type=Warning"})
		if err != nil {
			return err
		}
		for _, it := range events.Items {
			if strings.Contains(it.Message, "did you mean secret?") {
				return nil
			}
		}
		return fmt.Errorf("none of %d says it", len(events.Items))
	})
}

func (m *machine) withoutWebhook(it *webhook) error {
	if err := it.end(); err != nil {
		return fmt.Errorf("the webhook does not end well: %w", err)
	}
	if _, err := m.create("asks", annotations()); err == nil || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "inject.keyward.dev") {
		return fmt.Errorf("the answer is %v", err)
	}
	_, err := m.create("asks-not", nil)
	return err
}

func (m *machine) again(it *webhook) error {
	before, err := m.authority()
	if err != nil {
		return err
	}
	if err := m.run(it); err != nil {
		return err
	}
	after, err := m.authority()
	if err != nil {
		return err
	}
	if before != after {
		return errors.New("the CA bundle has changed")
	}
	return m.injects("again")
}

// injects creates pods until one is injected: the API server needs a moment for a changed CA bundle.
func (m *machine) injects(name string) error {
	return await("an injected pod", func() error {
		made, err := m.create(name, annotations())
		if err != nil {
			return err
		}
		return injected(made)
	})
}

func (m *machine) emptied(it *webhook) error {
	ctx, secrets := context.Background(), m.client.CoreV1().Secrets(namespace)
	before, err := m.authority()
	if err != nil {
		return err
	}
	if err := it.end(); err != nil {
		return err
	}
	secret, err := secrets.Get(ctx, "keyward-webhook", metav1.GetOptions{})
	if err != nil {
		return err
	}
	secret.Data = nil
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := m.run(it); err != nil {
		return err
	}
	if err := await("another CA bundle", func() error {
		after, err := m.authority()
		if err == nil && after == before {
			err = errors.New("it is that of before")
		}
		return err
	}); err != nil {
		return err
	}
	return m.injects("emptied")
}

func (m *machine) foreignBundle(*webhook) error {
	ctx, configurations := context.Background(), m.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	before, err := m.authority()
	if err != nil {
		return err
	}
	found, err := configurations.Get(ctx, configuration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	found.Webhooks[0].ClientConfig.CABundle = nil
	if _, err := configurations.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := await("the webhook's CA bundle", func() error {
		after, err := m.authority()
		if err == nil && after != before {
			err = errors.New("it is another")
		}
		return err
	}); err != nil {
		return err
	}
	return m.injects("foreign")
}
