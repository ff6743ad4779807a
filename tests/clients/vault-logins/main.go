// HashiCorp's own auth methods aws, cert and gcp behind Vault's HTTP API: a server that verifies logins as Vault does, by the code of
// Vault, with a storage in memory. Only these methods are there, at auth/aws, auth/cert and auth/gcp, and anyone may configure them. It
// listens on a free port of loopback and prints its URL; with the files of a certificate and its key as arguments, by TLS. AWS and Google
// are called as Vault calls them: through the proxy of HTTPS_PROXY, with the certificates of SSL_CERT_FILE.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	gcpauth "github.com/hashicorp/vault-plugin-auth-gcp/plugin"
	awsauth "github.com/hashicorp/vault/builtin/credential/aws"
	certauth "github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/rotation"
)

// A mounted method with its storage.
type mount struct {
	backend logical.Backend
	storage logical.Storage
}

// Vault's settings, without the rotation of the methods' own credentials.
type systemView struct{ logical.StaticSystemView }

func (systemView) DeregisterRotationJob(context.Context, *rotation.RotationJobDeregisterRequest) error {
	return nil
}

func newMount(factory logical.Factory) (*mount, error) {
	storage := &logical.InmemStorage{}
	config := &logical.BackendConfig{
		StorageView: storage,
		Logger:      hclog.New(&hclog.LoggerOptions{Level: hclog.Warn}),
		System: systemView{logical.StaticSystemView{
			DefaultLeaseTTLVal: time.Hour,
			MaxLeaseTTLVal:     4 * time.Hour,
			PluginEnvironment:  &logical.PluginEnvironment{VaultVersion: "1.14.1"},
		}},
	}
	ctx := context.Background()
	backend, err := factory(ctx, config)
	if err == nil {
		err = backend.Initialize(ctx, &logical.InitializationRequest{Storage: storage})
	}
	return &mount{backend, storage}, err
}

// Handles a request as Vault's core does: a path without an existence check is updated, any other created or updated.
func (m *mount) handle(r *http.Request, path string) (int, any) {
	request := &logical.Request{
		Operation:  logical.UpdateOperation,
		Path:       path,
		Storage:    m.storage,
		Headers:    r.Header,
		Connection: &logical.Connection{RemoteAddr: "127.0.0.1", ConnState: r.TLS},
	}
	switch r.Method {
	case http.MethodGet:
		request.Operation = logical.ReadOperation
	case http.MethodPost, http.MethodPut:
		decoder := json.NewDecoder(r.Body)
		decoder.UseNumber()
		if err := decoder.Decode(&request.Data); err != nil {
			return http.StatusBadRequest, failure("error parsing JSON")
		}
		checked, exists, err := m.backend.HandleExistenceCheck(r.Context(), request)
		if err == nil && checked && !exists {
			request.Operation = logical.CreateOperation
		}
	default:
		return http.StatusMethodNotAllowed, failure("unsupported operation")
	}
	response, err := m.backend.HandleRequest(r.Context(), request)
	if status, err := logical.RespondErrorCommon(request, response, err); err != nil || status != 0 {
		if err == nil {
			return status, failure()
		}
		return status, failure(err.Error())
	}
	if response == nil {
		return http.StatusNoContent, nil
	}
	if response.Auth != nil {
		// The core issues the token; the method has decided that there is one, and with which policies.
		response.Auth.ClientToken, response.Auth.Accessor = "hvs."+rand.Text(), rand.Text()
		response.Auth.TokenPolicies = response.Auth.Policies
	}
	return http.StatusOK, logical.LogicalResponseToHTTPResponse(response)
}

func failure(messages ...string) any {
	return map[string][]string{"errors": messages}
}

func main() {
	aws, err := newMount(awsauth.Factory)
	check(err)
	gcp, err := newMount(gcpauth.Factory)
	check(err)
	cert, err := newMount(certauth.Factory)
	check(err)
	handler := func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusNotFound, failure("no handler for route")
		path := strings.TrimPrefix(r.URL.Path, "/v1/")
		if rest, found := strings.CutPrefix(path, "auth/aws/"); found {
			status, body = aws.handle(r, rest)
		} else if rest, found := strings.CutPrefix(path, "auth/cert/"); found {
			status, body = cert.handle(r, rest)
		} else if rest, found := strings.CutPrefix(path, "auth/gcp/"); found {
			status, body = gcp.handle(r, rest)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if body != nil {
			_ = json.NewEncoder(w).Encode(body)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	scheme := "http"
	if len(os.Args) == 3 {
		pair, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
		check(err)
		// As Vault's listener asks for them: the method verifies what it gets.
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
		scheme = "https"
	}
	fmt.Printf("%s://%s\n", scheme, listener.Addr())
	check(http.Serve(listener, http.HandlerFunc(handler)))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
