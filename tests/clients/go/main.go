// Calls of go-tfe of December 2020 about workspaces, states, modules and tokens, against an emulated Terraform Enterprise.
// Its six calls about modules use the routes that were replaced on 2021-06-8.
//
// TFE_ADDRESS and TFE_TOKEN name the server and the token. OTHERS says if calls with other tokens are `taken` or
// `refused`. The organization `example` exists, and its SSH keys fill three pages.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	tfe "github.com/hashicorp/go-tfe"
)

const organization = "example"

var ctx = context.Background()

// check ends the program unless all is well.
func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		panic(err)
	}
}

func want(good bool, found ...interface{}) {
	if !good {
		check(fmt.Errorf("unexpected: %v", found))
	}
}

func gone(_ interface{}, err error) {
	want(err == tfe.ErrResourceNotFound, err)
}

func who(client *tfe.Client) {
	user, err := client.Users.ReadCurrent(ctx)
	check(err)
	want(user.Username != "" && client.RemoteAPIVersion() != "", user, client.RemoteAPIVersion())
	organizations, err := client.Organizations.List(ctx, tfe.OrganizationListOptions{})
	check(err)
	want(len(organizations.Items) > 0, organizations)
	_, err = client.Organizations.Entitlements(ctx, organization)
	check(err)
}

func lists(client *tfe.Client) {
	seen := map[string]bool{}
	for page := 1; page != 0; {
		options := tfe.SSHKeyListOptions{ListOptions: tfe.ListOptions{PageNumber: page, PageSize: 100}}
		keys, err := client.SSHKeys.List(ctx, organization, options)
		check(err)
		for _, key := range keys.Items {
			seen[key.ID] = true
		}
		want(keys.TotalCount == 250, keys.Pagination)
		page = keys.NextPage
	}
	want(len(seen) == 250, len(seen))
}

func workspaces(client *tfe.Client) {
	made, err := client.Workspaces.Create(ctx, organization, tfe.WorkspaceCreateOptions{Name: tfe.String("gotfe")})
	check(err)
	read, err := client.Workspaces.Read(ctx, organization, "gotfe")
	check(err)
	want(read.ID == made.ID, read)
	locked, err := client.Workspaces.Lock(ctx, made.ID, tfe.WorkspaceLockOptions{Reason: tfe.String("mine")})
	check(err)
	want(locked.Locked, locked)
	_, err = client.Workspaces.Lock(ctx, made.ID, tfe.WorkspaceLockOptions{})
	want(err == tfe.ErrWorkspaceLocked, err)
	state, err := json.Marshal(map[string]interface{}{"version": 4, "serial": 1, "lineage": "x", "resources": []int{}})
	check(err)
	version, err := client.StateVersions.Create(ctx, made.ID, tfe.StateVersionCreateOptions{
		Serial: tfe.Int64(1), MD5: tfe.String(fmt.Sprintf("%x", md5.Sum(state))), Lineage: tfe.String("x"),
		State: tfe.String(base64.StdEncoding.EncodeToString(state)),
	})
	check(err)
	current, err := client.StateVersions.Current(ctx, made.ID)
	check(err)
	want(current.ID == version.ID, current)
	raw, err := client.StateVersions.Download(ctx, current.DownloadURL)
	check(err)
	want(bytes.Equal(raw, state), string(raw))
	_, err = client.Workspaces.Unlock(ctx, made.ID)
	check(err)
	check(client.Workspaces.DeleteByID(ctx, made.ID))
	gone(client.Workspaces.ReadByID(ctx, made.ID))
}

func modules(client *tfe.Client) {
	registry := client.RegistryModules
	options := tfe.RegistryModuleCreateOptions{Name: tfe.String("iam"), Provider: tfe.String("aws")}
	module, err := registry.Create(ctx, organization, options)
	check(err)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		options := tfe.RegistryModuleCreateVersionOptions{Version: tfe.String(version)}
		made, err := registry.CreateVersion(ctx, organization, "iam", "aws", options)
		check(err)
		want(made.Version == version, made)
	}
	read, err := registry.Read(ctx, organization, "iam", "aws")
	check(err)
	want(read.ID == module.ID && len(read.VersionStatuses) == 2, read)
	check(registry.DeleteVersion(ctx, organization, "iam", "aws", "1.0.0"))
	read, err = registry.Read(ctx, organization, "iam", "aws")
	check(err)
	want(len(read.VersionStatuses) == 1 && read.VersionStatuses[0].Version == "1.1.0", read.VersionStatuses)
	check(registry.DeleteProvider(ctx, organization, "iam", "aws"))
	gone(registry.Read(ctx, organization, "iam", "aws"))
	_, err = registry.Create(ctx, organization, options)
	check(err)
	check(registry.Delete(ctx, organization, "iam"))
	gone(registry.Read(ctx, organization, "iam", "aws"))
}

func repositories(client *tfe.Client) {
	made, err := client.OAuthClients.Create(ctx, organization, tfe.OAuthClientCreateOptions{
		APIURL: tfe.String("https://api.github.com"), HTTPURL: tfe.String("https://github.com"),
		OAuthToken: tfe.String("secret"), ServiceProvider: tfe.ServiceProvider(tfe.ServiceProviderGithub),
	})
	check(err)
	name := tfe.String("acme/terraform-aws-zone")
	module, err := client.RegistryModules.CreateWithVCSConnection(ctx, tfe.RegistryModuleCreateWithVCSConnectionOptions{
		VCSRepo: &tfe.RegistryModuleVCSRepoOptions{
			Identifier: name, DisplayIdentifier: name, OAuthTokenID: tfe.String(made.OAuthTokens[0].ID),
		},
	})
	check(err)
	want(module.Name == "zone" && module.Provider == "aws", module)
	check(client.RegistryModules.Delete(ctx, organization, "zone"))
	check(client.OAuthClients.Delete(ctx, made.ID))
}

func tokens(client *tfe.Client) {
	team, err := client.Teams.Create(ctx, organization, tfe.TeamCreateOptions{Name: tfe.String("gotfe")})
	check(err)
	first, err := client.TeamTokens.Generate(ctx, team.ID)
	check(err)
	second, err := client.TeamTokens.Generate(ctx, team.ID)
	check(err)
	for token, good := range map[string]bool{first.Token: false, second.Token: os.Getenv("OTHERS") == "taken"} {
		config := tfe.DefaultConfig()
		config.Token = token
		other, err := tfe.NewClient(config)
		check(err)
		_, err = other.Workspaces.List(ctx, organization, tfe.WorkspaceListOptions{})
		want(good == (err == nil), good, err)
	}
	check(client.TeamTokens.Delete(ctx, team.ID))
	check(client.Teams.Delete(ctx, team.ID))
}

func main() {
	config := tfe.DefaultConfig()
	config.HTTPClient = &http.Client{}
	client, err := tfe.NewClient(config)
	check(err)
	for _, part := range []func(*tfe.Client){who, lists, workspaces, modules, repositories, tokens} {
		part(client)
	}
}
