package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// webhook is the chart's webhook: the pod that its Deployment made, run outside of a container.
type webhook struct {
	pod     *corev1.Pod
	program string
	command *exec.Cmd
	flags   []string
}

const (
	// namespace has the chart's release.
	namespace = "keyward"
	// configuration is the release's MutatingWebhookConfiguration.
	configuration = "keyward-webhook-keyward"
	// node is the machine of all pods.
	node = "machine"
)

// placeWebhook does a scheduler's and a kubelet's work for the pod of the webhook's Deployment: binds it, and fetches its token and the
// CA of the API server. Makes the flags that stand for its mounts.
func (m *machine) placeWebhook(program string) (*webhook, error) {
	ctx := context.Background()
	it := &webhook{program: program}
	err := await("a pod of the webhook's Deployment", func() error {
		pods, err := m.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=webhook"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		it.pod = &pods.Items[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	machine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if _, err := m.client.CoreV1().Nodes().Create(ctx, machine, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: it.pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := m.client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: it.pod.Name, UID: it.pod.UID}}}
	token, err := m.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, it.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	authority, err := m.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	bundle, err := m.client.CoreV1().ConfigMaps(namespace).Get(ctx, "vault-ca", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	mounted := map[string]string{"token": token.Status.Token, "ca.crt": authority.Data["ca.crt"], "vault-ca.crt": bundle.Data["ca.crt"]}
	for name, content := range mounted {
		path, err := m.file(name, []byte(content))
		if err != nil {
			return nil, err
		}
		mounted[name] = path
	}
	for _, flag := range it.pod.Spec.Containers[0].Args {
		if flag == "--ca-file=/etc/keyward-ca/ca.crt" {
			flag = "--ca-file=" + mounted["vault-ca.crt"]
		}
		it.flags = append(it.flags, flag)
	}
	it.flags = append(it.flags, "--api-server="+m.config.Host, "--api-token-file="+mounted["token"], "--api-ca-file="+mounted["ca.crt"])
	return it, nil
}

// run starts the webhook, waits for its readiness probe, and reports its pod as ready, with the address of this machine.
func (m *machine) run(it *webhook) error {
	ctx := context.Background()
	var err error
	if it.command, err = m.start("webhook", it.program, it.flags...); err != nil {
		return err
	}
	probe := it.pod.Spec.Containers[0].ReadinessProbe.HTTPGet
	port := int32(0)
	for _, its := range it.pod.Spec.Containers[0].Ports {
		if its.Name == probe.Port.StrVal {
			port = its.ContainerPort
		}
	}
	if err := await("the webhook's readiness probe", func() error {
		return healthy(fmt.Sprintf("http://%s:%d%s", address, port, probe.Path))
	}); err != nil {
		return err
	}
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = m.client.CoreV1().Pods(namespace).Patch(ctx, it.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return await("endpoints of the webhook's Service", func() error {
		slices, err := m.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=keyward-webhook"})
		if err != nil {
			return err
		}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					return nil
				}
			}
		}
		return errors.New("none is ready")
	})
}

// end ends the webhook.
func (it *webhook) end() error {
	if err := it.command.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return it.command.Wait()
}

// authority returns the CA bundle by which the API server trusts the webhook.
func (m *machine) authority() (string, error) {
	found, err := m.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), configuration, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if len(found.Webhooks) != 1 || len(found.Webhooks[0].ClientConfig.CABundle) == 0 {
		return "", errors.New("there is no CA bundle")
	}
	return string(found.Webhooks[0].ClientConfig.CABundle), nil
}

// mayNot returns an error if the webhook's service account has a right that it does not need.
func (m *machine) mayNot(account string) error {
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Namespace: namespace, Verb: "get", Resource: "secrets", Name: "another"},
		{Namespace: namespace, Verb: "list", Resource: "secrets"},
		{Namespace: namespace, Verb: "create", Resource: "secrets"},
		{Namespace: "shop", Verb: "get", Resource: "secrets", Name: "keyward-webhook"},
		{Verb: "list", Resource: "pods"},
		{Verb: "patch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "another"},
		{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "watch", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &attributes}}
		answer, err := m.client.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if answer.Status.Allowed {
			return fmt.Errorf("it may %s %s %s", attributes.Verb, attributes.Resource, attributes.Name)
		}
	}
	return nil
}
