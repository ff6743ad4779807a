// Consul's own Go client, doing to the server at CONSUL_HTTP_ADDR what the Terraform provider for Consul does: the same
// calls in the same order, and the same fields of the answers read without a look whether they are there. The provider
// itself is no dependency: its releases are tagged v2 while its module path is not, and not every module proxy has it.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	consul "github.com/hashicorp/consul/api"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "oidc" {
		logInWithBrowser(os.Args[2], os.Args[3])
		return
	}
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
	// In a namespace every resource of the provider sends it as a query, and the datacenter too.
	for _, namespace := range []string{"", "inside"} {
		tokensAndRoles(client, namespace)
		bindingRules(client, namespace)
	}
	fmt.Println("done")
}

// A resource of type consul_namespace after a read. The provider reads both lists of ACLs unchanged.
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

func authMethod(name string) *consul.ACLAuthMethod {
	return &consul.ACLAuthMethod{
		Name:           name,
		Type:           "jwt",
		Config:         map[string]interface{}{"JWKSURL": "https://issuer.example/keys"},
		NamespaceRules: []*consul.ACLAuthMethodNamespaceRule{},
	}
}

func authMethods(client *consul.Client) {
	method := authMethod("ci")
	_, _, err := client.ACL().AuthMethodCreate(method, nil)
	check(err)
	// A setting that the configuration omits must be read back as unset; otherwise each plan shows a change.
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

// Creates the auth method `people` for an OpenID provider, and logs in by it as `consul login -type=oidc` does. Prints the address
// of the login, reads state and code, which the browser brings, and prints the description of the token.
func logInWithBrowser(issuer, redirect string) {
	client, err := consul.NewClient(consul.DefaultConfig())
	check(err)
	settings := &consul.OIDCAuthMethodConfig{
		OIDCDiscoveryURL:    issuer,
		OIDCClientID:        "keyward",
		AllowedRedirectURIs: []string{redirect},
		ClaimMappings:       map[string]string{"name": "name"},
		ListClaimMappings:   map[string]string{"groups": "groups"},
	}
	method := &consul.ACLAuthMethod{Name: "people", Type: "oidc", Config: settings.RenderToConfig()}
	_, _, err = client.ACL().AuthMethodCreate(method, nil)
	check(err)
	rule := &consul.ACLBindingRule{AuthMethod: "people", BindType: consul.BindingRuleBindTypeService, BindName: "web"}
	_, _, err = client.ACL().BindingRuleCreate(rule, nil)
	check(err)
	begin := &consul.ACLOIDCAuthURLParams{
		AuthMethod:  "people",
		RedirectURI: redirect,
		ClientNonce: "c76e7b9f-5f9f-4b52-8b25-3fb1b7a1b1bd",
		Meta:        map[string]string{"host": "laptop"},
	}
	address, _, err := client.ACL().OIDCAuthURL(begin, nil)
	check(err)
	fmt.Println(address)
	end := &consul.ACLOIDCCallbackParams{AuthMethod: "people", ClientNonce: begin.ClientNonce}
	_, err = fmt.Scanln(&end.State, &end.Code)
	check(err)
	token, _, err := client.ACL().OIDCCallback(end, nil)
	check(err)
	want("the method of the token", token.AuthMethod, "people")
	want("the service of the token", token.ServiceIdentities[0].ServiceName, "web")
	if token.SecretID == "" {
		fail("the token has no secret")
	}
	fmt.Println(token.Description)
}

// The resources consul_acl_policy, consul_acl_role and consul_acl_token, and those that attach one to another: they read,
// append a link by name, and write back all that they read.
func tokensAndRoles(client *consul.Client, namespace string) {
	query := &consul.QueryOptions{Datacenter: "dc1", Namespace: namespace}
	write := &consul.WriteOptions{Datacenter: "dc1", Namespace: namespace}
	if namespace != "" {
		_, _, err := client.Namespaces().Create(&consul.Namespace{Name: namespace}, nil)
		check(err)
	}
	acl := client.ACL()
	policy, _, err := acl.PolicyCreate(&consul.ACLPolicy{Name: "read", Namespace: namespace, Datacenters: []string{"dc1"}}, write)
	check(err)
	identity := &consul.ACLServiceIdentity{ServiceName: "web", Datacenters: []string{"dc1"}}
	template := &consul.ACLTemplatedPolicy{
		TemplateName:      "builtin/service",
		Datacenters:       []string{"dc1"},
		TemplateVariables: &consul.ACLTemplatedPolicyVariables{Name: "api"},
	}
	role, _, err := acl.RoleCreate(&consul.ACLRole{
		Name:              "full",
		Namespace:         namespace,
		Policies:          []*consul.ACLLink{{ID: policy.ID}},
		ServiceIdentities: []*consul.ACLServiceIdentity{identity},
		TemplatedPolicies: []*consul.ACLTemplatedPolicy{template},
	}, write)
	check(err)
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	token, _, err := acl.TokenCreate(&consul.ACLToken{
		Description:       "full",
		Namespace:         namespace,
		Roles:             []*consul.ACLLink{{Name: "full"}},
		NodeIdentities:    []*consul.ACLNodeIdentity{{NodeName: "node-1", Datacenter: "dc1"}},
		TemplatedPolicies: []*consul.ACLTemplatedPolicy{template},
		ExpirationTime:    &end,
	}, write)
	check(err)

	token.Policies = append(token.Policies, &consul.ACLLink{Name: "read"})
	_, _, err = acl.TokenUpdate(token, write)
	check(err)
	token, _, err = acl.TokenRead(token.AccessorID, query)
	check(err)
	want("the token's links", token.Policies[0].Name+" "+token.Roles[0].Name, "read full")
	want("the token's template", token.TemplatedPolicies[0].TemplateName, "builtin/service")
	want("the variable of the token's template", token.TemplatedPolicies[0].TemplateVariables.Name, "api")
	want("the token's end", token.ExpirationTime.Format(time.RFC3339), end.Format(time.RFC3339))

	role.Policies = nil
	_, _, err = acl.RoleUpdate(role, write)
	check(err)
	role, _, err = acl.RoleReadByName("full", query)
	check(err)
	want("the number of the role's policies", fmt.Sprint(len(role.Policies)), "0")
	want("the role's identity", fmt.Sprint(*role.ServiceIdentities[0]), fmt.Sprint(*identity))
	found, _, err := acl.PolicyReadByName("read", query)
	check(err)
	want("the policy's datacenters and rules", fmt.Sprintf("%v %q", found.Datacenters, found.Rules), `[dc1] ""`)

	_, err = acl.TokenDelete(token.AccessorID, write)
	check(err)
	_, err = acl.RoleDelete(role.ID, write)
	check(err)
	_, err = acl.PolicyDelete(policy.ID, write)
	check(err)
	// The provider recognizes a deleted token only by this text.
	_, _, err = acl.TokenRead(token.AccessorID, query)
	if err == nil || !strings.Contains(err.Error(), "ACL not found") {
		fail("a deleted token is answered with %v", err)
	}
}

// The resource consul_acl_binding_rule. A setting that is not configured must be read back as unset.
func bindingRules(client *consul.Client, namespace string) {
	query := &consul.QueryOptions{Namespace: namespace}
	write := &consul.WriteOptions{Namespace: namespace}
	acl := client.ACL()
	method := authMethod("machines")
	method.Namespace = namespace
	_, _, err := acl.AuthMethodCreate(method, write)
	check(err)
	variables := &consul.ACLTemplatedPolicyVariables{Name: "api"}
	rules := []*consul.ACLBindingRule{
		{BindType: "service", BindName: "web"},
		{BindType: "templated-policy", BindName: "builtin/service", BindVars: variables},
	}
	for _, rule := range rules {
		rule.AuthMethod, rule.Namespace = "machines", namespace
		made, _, err := acl.BindingRuleCreate(rule, write)
		check(err)
		made.Description = "changed"
		_, _, err = acl.BindingRuleUpdate(made, write)
		check(err)
		found, _, err := acl.BindingRuleRead(made.ID, query)
		check(err)
		told := func(rule *consul.ACLBindingRule, description string) string {
			return fmt.Sprintln(description, rule.Selector, rule.BindType, rule.BindName, rule.BindVars != nil)
		}
		want("the binding rule", told(found, found.Description), told(rule, "changed"))
		_, err = acl.BindingRuleDelete(made.ID, write)
		check(err)
		found, _, err = acl.BindingRuleRead(made.ID, query)
		check(err)
		if found != nil {
			fail("the binding rule is not gone: %+v", found)
		}
	}
	_, err = acl.AuthMethodDelete("machines", write)
	check(err)
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
