// Uses the SDKs of Azure, AWS, Google Cloud and Kubernetes, as programs on them do, against keyward's identity listener.
//
//	go-identity app-service RESOURCE SECONDS
//	go-identity aws SECONDS
//	go-identity gcp CREDENTIAL_FILE SECONDS
//	go-identity oauth TOKEN_URL SCOPE SECRET SECONDS
//	go-identity kube SECONDS COMMAND [ARGUMENT...]
//
// Asks as often as a program without a cache would, and ends with an error at the first token that has expired. Prints the number of
// requests and of different tokens.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/oauth2/google/externalaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

var ctx = context.Background()

// check ends the program with the caller's line where there is an error.
func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

// end returns the time in the claim exp of a signed token.
func end(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		log.Fatal("not a signed token")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	check(err)
	var claims struct {
		Exp int64 `json:"exp"`
	}
	check(json.Unmarshal(text, &claims))
	return time.Unix(claims.Exp, 0)
}

// follow asks again and again for some seconds. What it gets has a name and an end, which must not have come.
func follow(seconds string, ask func() (string, time.Time)) {
	span, err := strconv.Atoi(seconds)
	check(err)
	requests, tokens := 0, map[string]bool{}
	for until := time.Now().Add(time.Duration(span) * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		token, end := ask()
		if !end.After(time.Now()) {
			log.Fatalf("request %d got a token that has expired", requests)
		}
		requests++
		tokens[token] = true
	}
	fmt.Println(requests, len(tokens))
}

func appService(resource, seconds string) {
	follow(seconds, func() (string, time.Time) {
		// A new credential has no token in its cache.
		credential, err := azidentity.NewManagedIdentityCredential(nil)
		check(err)
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{resource + "/.default"}})
		check(err)
		if token.ExpiresOn.Unix() != end(token.Token).Unix() {
			log.Fatalf("expires_on is %v", token.ExpiresOn)
		}
		return token.Token, token.ExpiresOn
	})
}

// awsCredentials takes what the environment or the profile names, as every program on the SDK does.
func awsCredentials(seconds string) {
	follow(seconds, func() (string, time.Time) {
		// The cache moves the end of credentials of an endpoint by five minutes.
		exact := config.WithCredentialsCacheOptions(func(options *aws.CredentialsCacheOptions) { options.ExpiryWindow = 0 })
		settings, err := config.LoadDefaultConfig(ctx, exact)
		check(err)
		credentials, err := settings.Credentials.Retrieve(ctx)
		check(err)
		if credentials.SecretAccessKey == "" || credentials.SessionToken == "" || !credentials.CanExpire {
			log.Fatalf("credentials of %s lack a part", credentials.Source)
		}
		return credentials.AccessKeyID, credentials.Expires
	})
}

// gcp exchanges the subject token at a token service of its own, which takes the place of Google's.
func gcp(file, seconds string) {
	subject := ""
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(r.ParseForm())
		subject = r.PostForm.Get("subject_token")
		w.Header().Set("content-type", "application/json")
		fmt.Fprint(w, `{"access_token": "a", "expires_in": 60, "token_type": "Bearer",
			"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}`)
	}))
	text, err := os.ReadFile(file)
	check(err)
	var credential struct {
		Audience         string                           `json:"audience"`
		SubjectTokenType string                           `json:"subject_token_type"`
		CredentialSource externalaccount.CredentialSource `json:"credential_source"`
	}
	check(json.Unmarshal(text, &credential))
	follow(seconds, func() (string, time.Time) {
		source, err := externalaccount.NewTokenSource(ctx, externalaccount.Config{
			Audience: credential.Audience, SubjectTokenType: credential.SubjectTokenType, TokenURL: sts.URL,
			Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}, CredentialSource: &credential.CredentialSource,
		})
		check(err)
		_, err = source.Token()
		check(err)
		return subject, end(subject)
	})
}

// oauth asks a token endpoint as a client with a secret.
func oauth(url, scope, secret, seconds string) {
	follow(seconds, func() (string, time.Time) {
		client := clientcredentials.Config{ClientID: "keyward", ClientSecret: secret, TokenURL: url, Scopes: []string{scope}}
		token, err := client.Token(ctx)
		check(err)
		return token.AccessToken, end(token.AccessToken)
	})
}

// kube calls an API server of its own, with the token that the command prints.
func kube(seconds string, command []string) {
	token := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token = strings.TrimPrefix(r.Header.Get("authorization"), "Bearer ")
	}))
	follow(seconds, func() (string, time.Time) {
		// Another request each time has another plugin in client-go's cache of them.
		exec := &api.ExecConfig{
			Command: command[0], Args: command[1:], APIVersion: "client.authentication.k8s.io/v1",
			InteractiveMode: api.NeverExecInteractiveMode,
			Env:             []api.ExecEnvVar{{Name: "REQUEST", Value: strconv.FormatInt(time.Now().UnixNano(), 10)}},
		}
		transport, err := rest.TransportFor(&rest.Config{
			Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, ExecProvider: exec,
		})
		check(err)
		response, err := (&http.Client{Transport: transport}).Get(server.URL)
		check(err)
		response.Body.Close()
		return token, end(token)
	})
}

func main() {
	log.SetFlags(log.Lshortfile)
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "app-service":
		appService(arguments[1], arguments[2])
	case len(arguments) == 2 && arguments[0] == "aws":
		awsCredentials(arguments[1])
	case len(arguments) == 3 && arguments[0] == "gcp":
		gcp(arguments[1], arguments[2])
	case len(arguments) == 5 && arguments[0] == "oauth":
		oauth(arguments[1], arguments[2], arguments[3], arguments[4])
	case len(arguments) > 2 && arguments[0] == "kube":
		kube(arguments[1], arguments[2:])
	default:
		log.Fatal("see the beginning of main.go")
	}
}
