// Uses today's go-tfe with workspaces, state versions, modules and tokens against HCP Terraform or Terraform Enterprise. One of
// its calls for modules still goes to a route that was replaced on 2021-06-8.
//
// TFE_ADDRESS and TFE_TOKEN name the server and the token. OTHERS says whether calls with the tokens that this program makes
// for others are `taken` or `refused`. The organization `example` exists.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	tfe "github.com/hashicorp/go-tfe"
)

const organization = "example"

var ctx = context.Background()

// check ends the program with the caller's line where there is an error.
func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func want(good bool, found ...any) {
	if !good {
		log.Output(2, fmt.Sprintf("unexpected: %v", found))
		os.Exit(1)
	}
}

func who(client *tfe.Client) {
	user, err := client.Users.ReadCurrent(ctx)
	check(err)
	want(user.Username != "" && client.RemoteAPIVersion() != "", user, client.RemoteAPIVersion())
	_, err = client.Organizations.ReadEntitlements(ctx, organization)
	check(err)
}

func states(client *tfe.Client) {
	made, err := client.Workspaces.Create(ctx, organization, tfe.WorkspaceCreateOptions{Name: tfe.String("current")})
	check(err)
	_, err = client.Workspaces.Lock(ctx, made.ID, tfe.WorkspaceLockOptions{Reason: tfe.String("mine")})
	check(err)
	state := []byte(`{"version": 4, "serial": 1, "lineage": "x", "resources": [], "outputs": {"a": {"value": "b", "type": "string"}}}`)
	version, err := client.StateVersions.Upload(ctx, made.ID, tfe.StateVersionUploadOptions{
		StateVersionCreateOptions: tfe.StateVersionCreateOptions{
			Serial: tfe.Int64(1), MD5: tfe.String(fmt.Sprintf("%x", md5.Sum(state))), Lineage: tfe.String("x"),
		},
		RawState: state, RawJSONState: []byte(`{"stable": true}`),
	})
	check(err)
	current, err := client.StateVersions.ReadCurrent(ctx, made.ID)
	check(err)
	want(current.ID == version.ID, current)
	raw, err := client.StateVersions.Download(ctx, current.DownloadURL)
	check(err)
	want(bytes.Equal(raw, state), string(raw))
	raw, err = client.StateVersions.Download(ctx, current.JSONDownloadURL)
	check(err)
	want(string(raw) == `{"stable": true}`, string(raw))
	outputs, err := client.StateVersions.ListOutputs(ctx, current.ID, nil)
	check(err)
	want(len(outputs.Items) == 1 && outputs.Items[0].Value == "b", outputs.Items)
	_, err = client.Workspaces.Unlock(ctx, made.ID)
	check(err)
	check(client.Workspaces.DeleteByID(ctx, made.ID))
	_, err = client.Workspaces.ReadByID(ctx, made.ID)
	want(errors.Is(err, tfe.ErrResourceNotFound), err)
}

func modules(client *tfe.Client) {
	registry := client.RegistryModules
	_, err := registry.Create(ctx, organization, tfe.RegistryModuleCreateOptions{
		Name: tfe.String("iam"), Provider: tfe.String("aws"), RegistryName: tfe.PrivateRegistry,
	})
	check(err)
	module := tfe.RegistryModuleID{
		Organization: organization, Name: "iam", Provider: "aws", Namespace: organization, RegistryName: tfe.PrivateRegistry,
	}
	version, err := registry.CreateVersion(ctx, module, tfe.RegistryModuleCreateVersionOptions{Version: tfe.String("1.0.0")})
	check(err)
	want(version.Version == "1.0.0", version)
	check(registry.DeleteByName(ctx, module))
}

func tokens(client *tfe.Client) {
	team, err := client.Teams.Create(ctx, organization, tfe.TeamCreateOptions{Name: tfe.String("current")})
	check(err)
	made, err := client.TeamTokens.CreateWithOptions(ctx, team.ID, tfe.TeamTokenCreateOptions{Description: tfe.String("one")})
	check(err)
	config := tfe.DefaultConfig()
	config.Token = made.Token
	other, err := tfe.NewClient(config)
	check(err)
	_, err = other.Workspaces.List(ctx, organization, nil)
	want((os.Getenv("OTHERS") == "taken") == (err == nil), err)
	check(client.TeamTokens.DeleteByID(ctx, made.ID))
	check(client.Teams.Delete(ctx, team.ID))
}

func main() {
	log.SetFlags(log.Lshortfile)
	config := tfe.DefaultConfig()
	config.HTTPClient = &http.Client{}
	client, err := tfe.NewClient(config)
	check(err)
	for _, part := range []func(*tfe.Client){who, states, modules, tokens} {
		part(client)
	}
}
