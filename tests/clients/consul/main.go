// Consul's own Go client, doing to the server at CONSUL_HTTP_ADDR what the Terraform provider for Consul does: the same
// calls in the same order, and the same fields of the answers read without a look whether they are there. The provider
// itself cannot be had as a Go module: its versions of today are tagged v2 while its module path is not.
package main

import (
	"fmt"
	"os"
	"time"

	consul "github.com/hashicorp/consul/api"
)

func main() {
	config := consul.DefaultConfig()
	first, err := consul.NewClient(config)
	check(err)
	root, _, err := first.ACL().Bootstrap()
	check(err)
	config.Token = root.SecretID
	client, err := consul.NewClient(config)
	check(err)

	namespaces(client)
	authMethods(client)
	fmt.Println("done")
}

// What a resource of type consul_namespace is after a read. The provider reads both lists of ACLs as they are.
type namespace struct {
	name, description string
	policies, roles   []string
	meta              map[string]string
}

func read(client *consul.Client, name string) namespace {
	found, _, err := client.Namespaces().Read(name, nil)
	check(err)
	state := namespace{name: found.Name, description: found.Description, meta: found.Meta}
	for _, role := range found.ACLs.RoleDefaults {
		state.roles = append(state.roles, role.Name)
	}
	for _, policy := range found.ACLs.PolicyDefaults {
		state.policies = append(state.policies, policy.Name)
	}
	return state
}

func namespaces(client *consul.Client) {
	_, _, err := client.ACL().PolicyCreate(&consul.ACLPolicy{Name: "base", Rules: `key_prefix "" { policy = "read" }`}, nil)
	check(err)
	_, _, err = client.ACL().RoleCreate(&consul.ACLRole{Name: "ops"}, nil)
	check(err)

	// Without arguments the provider sends empty lists and an empty map.
	empty := &consul.NamespaceACLConfig{PolicyDefaults: []consul.ACLLink{}, RoleDefaults: []consul.ACLLink{}}
	bare := &consul.Namespace{Name: "bare", Meta: map[string]string{}, ACLs: empty}
	made, _, err := client.Namespaces().Create(bare, nil)
	check(err)
	want("the name of what was made", made.Name, "bare")
	same("a namespace without arguments", read(client, "bare"), namespace{name: "bare"})

	linked := &consul.NamespaceACLConfig{
		PolicyDefaults: []consul.ACLLink{{Name: "base"}},
		RoleDefaults:   []consul.ACLLink{{Name: "ops"}},
	}
	full := &consul.Namespace{Name: "bare", Description: "d", Meta: map[string]string{"a": "b"}, ACLs: linked}
	_, _, err = client.Namespaces().Update(full, nil)
	check(err)
	wanted := namespace{"bare", "d", []string{"base"}, []string{"ops"}, map[string]string{"a": "b"}}
	same("a namespace with all arguments", read(client, "bare"), wanted)

	_, _, err = client.Namespaces().Update(bare, nil)
	check(err)
	same("a namespace whose arguments were taken away", read(client, "bare"), namespace{name: "bare"})
	_, err = client.Namespaces().Delete("bare", nil)
	check(err)
	for attempt := 0; ; attempt++ {
		gone, _, err := client.Namespaces().Read("bare", nil)
		check(err)
		if gone == nil {
			break
		}
		if attempt == 600 {
			fail("the namespace is not gone: %+v", gone)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func authMethods(client *consul.Client) {
	method := &consul.ACLAuthMethod{
		Name:           "ci",
		Type:           "jwt",
		Config:         map[string]interface{}{"JWKSURL": "https://issuer.example/keys"},
		NamespaceRules: []*consul.ACLAuthMethodNamespaceRule{},
	}
	_, _, err := client.ACL().AuthMethodCreate(method, nil)
	check(err)
	// What the configuration does not say must come back as nothing: else each plan shows a change.
	found, _, err := client.ACL().AuthMethodRead("ci", nil)
	check(err)
	want("the locality that was not given", found.TokenLocality, "")
	want("the life that was not given", found.MaxTokenTTL.String(), "0s")
	want("the name for people that was not given", found.DisplayName, "")

	for _, locality := range []string{"local", "global", ""} {
		method.TokenLocality = locality
		_, _, err = client.ACL().AuthMethodUpdate(method, nil)
		check(err)
		found, _, err = client.ACL().AuthMethodRead("ci", nil)
		check(err)
		want("the locality that was given", found.TokenLocality, locality)
	}
	_, err = client.ACL().AuthMethodDelete("ci", nil)
	check(err)
	found, _, err = client.ACL().AuthMethodRead("ci", nil)
	check(err)
	if found != nil {
		fail("the auth method is not gone: %+v", found)
	}
}

func same(what string, found, wanted namespace) {
	want(what, fmt.Sprintf("%+v", found), fmt.Sprintf("%+v", wanted))
}

func want(what, found, wanted string) {
	if found != wanted {
		fail("%s is %q instead of %q", what, found, wanted)
	}
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
