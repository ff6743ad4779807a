// Serves SPIFFE's Workload API as SPIRE's agent does, by the messages of go-spiffe on grpc-go: for one process, with one or two identities.
//
//	go-spiffe SOCKET PUBLIC_KEY_FILE
//
// Writes the key that verifies its tokens. Each line of its input is the state from then on: "registered", "unregistered", "unavailable".
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

type api struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	signer jose.Signer
	state  atomic.Value
}

func (a *api) FetchJWTSVID(ctx context.Context, request *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	// SPIRE's words.
	if header, _ := metadata.FromIncomingContext(ctx); len(header["workload.spiffe.io"]) != 1 || header["workload.spiffe.io"][0] != "true" {
		return nil, status.Error(codes.InvalidArgument, "security header missing from request")
	}
	switch a.state.Load() {
	case "unregistered":
		return nil, status.Error(codes.PermissionDenied, "no identity issued")
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "could not fetch JWT-SVID")
	}
	if len(request.Audience) == 0 {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	response := &workload.JWTSVIDResponse{}
	for _, id := range []string{"spiffe://example.org/web", "spiffe://example.org/other"} {
		if request.SpiffeId != "" && request.SpiffeId != id {
			continue
		}
		now := time.Now()
		claims := jwt.Claims{Subject: id, Audience: request.Audience, IssuedAt: jwt.NewNumericDate(now),
			Expiry: jwt.NewNumericDate(now.Add(5 * time.Minute))}
		token, err := jwt.Signed(a.signer).Claims(claims).Serialize()
		if err != nil {
			return nil, err
		}
		response.Svids = append(response.Svids, &workload.JWTSVID{SpiffeId: id, Svid: token, Hint: "internal"})
	}
	if len(response.Svids) == 0 {
		return nil, status.Error(codes.PermissionDenied, "no identity issued")
	}
	return response, nil
}

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	check(err)
	check(os.WriteFile(os.Args[2], pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "authority"}},
		(&jose.SignerOptions{}).WithType("JWT"))
	check(err)
	it := &api{signer: signer}
	it.state.Store("registered")
	listener, err := net.Listen("unix", os.Args[1])
	check(err)
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, it)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			it.state.Store(lines.Text())
			os.Stdout.WriteString(lines.Text() + "\n")
		}
		os.Exit(0)
	}()
	check(server.Serve(listener))
}
