package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aclAddress is that of keyward's ACL server, and aclAudience the audience of tokens for it.
const (
	aclAddress  = "127.0.0.1:8500"
	aclAudience = "https://acl.example.com"
)

// serviceAccounts lets service accounts log in at keyward's ACL server, which asks the API server about their tokens.
func (m *machine) serviceAccounts(program string) error {
	ctx, accounts := context.Background(), m.client.CoreV1().ServiceAccounts(shop)
	for _, name := range []string{"reviewer", "visitor"} {
		it := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := accounts.Create(ctx, it, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	own, err := m.token("reviewer")
	if err != nil {
		return err
	}
	tokenFile, err := m.file("reviewer.token", []byte(own))
	if err != nil {
		return err
	}
	config, err := m.file("acl.toml", fmt.Appendf(nil, `[acl]
listen = "tcp://%s"
data_dir = %q
[acl.method.cluster]
type = "kubernetes"
audience = %q
api_url = %q
ca_file = %q
token_file = %q
[acl.method.cluster.role.visitor]
service_accounts = ["shop/visitor"]
[acl.method.cluster.role.other]
service_accounts = ["shop/default"]
`, aclAddress, filepath.Join(m.folder, "acl"), aclAudience, m.config.Host, m.config.CAFile, tokenFile))
	if err != nil {
		return err
	}
	if _, err := m.start("acl", program, "run", "--config", config); err != nil {
		return err
	}
	visitor, err := m.token("visitor", aclAudience)
	if err != nil {
		return err
	}
	// The server's own account may not ask yet.
	if err := await("the refusal of the server's own account", func() error {
		return m.logIn("visitor", visitor, http.StatusServiceUnavailable, "system:auth-delegator")
	}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "keyward-acl"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shop, Name: "reviewer"}},
	}
	if _, err := m.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := await("the login", func() error { return m.logIn("visitor", visitor, http.StatusOK, `"service_account_name":"visitor"`) }); err != nil {
		return err
	}
	foreign, err := m.token("visitor")
	if err != nil {
		return err
	}
	for _, it := range []struct {
		role, token, expected string
	}{
		{"other", visitor, "service account name not authorized"},
		{"visitor", foreign, "lookup failed"},
		{"visitor", visitor[:len(visitor)-8] + "AAAAAAAA", "lookup failed"},
	} {
		if err := m.logIn(it.role, it.token, http.StatusForbidden, it.expected); err != nil {
			return err
		}
	}
	if err := accounts.Delete(ctx, "visitor", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await("the refusal of an account that is gone", func() error {
		return m.logIn("visitor", visitor, http.StatusForbidden, "lookup failed")
	})
}

// token returns a token of a service account, for the API server if there are no audiences.
func (m *machine) token(account string, audiences ...string) (string, error) {
	life := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &life}}
	made, err := m.client.CoreV1().ServiceAccounts(shop).CreateToken(context.Background(), account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// logIn logs in, and checks status and text of the answer.
func (m *machine) logIn(role, token string, status int, expected string) error {
	body, err := json.Marshal(map[string]string{"role": role, "jwt": token})
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 15 * time.Second}
	answer, err := client.Post("http://"+aclAddress+"/v1/auth/cluster/login", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != status || !strings.Contains(text.String(), expected) {
		return fmt.Errorf("role %s: %s: %s; not %d with %s", role, answer.Status, text.String(), status, expected)
	}
	return nil
}
