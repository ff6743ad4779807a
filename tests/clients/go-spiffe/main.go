// Serves SPIFFE's Workload API as SPIRE's agent does, by the messages of go-spiffe on grpc-go: for one process, with one or two identities.
//
//	go-spiffe SOCKET PUBLIC_KEY_FILE AUTHORITIES_FILE
//
// Writes the key that verifies its tokens, and the authorities of its certificates. Each line of its input is the state from then on: "registered", "unregistered", "unavailable";
// or a change of its certificates: "rotate" for other ones, "authority" for one more authority of the trust domain.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"net/url"
	"os"
	"sync"
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

	lock        sync.Mutex
	state       string
	changed     chan struct{}
	authorities []authority
	svids       []*workload.X509SVID
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var ids = []string{"spiffe://example.org/web", "spiffe://example.org/other"}

// Creates a key and a certificate that the issuer signs, or the key itself.
func issue(template *x509.Certificate, issuer *authority) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	check(err)
	template.NotBefore, template.NotAfter = time.Now().Add(-10*time.Second), time.Now().Add(time.Hour)
	template.BasicConstraintsValid = true
	if issuer == nil {
		issuer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key)
	check(err)
	certificate, err := x509.ParseCertificate(der)
	check(err)
	return authority{certificate, key}
}

// Adds an authority, as SPIRE's server does before it signs with it.
func (a *api) addAuthority() {
	domain := &url.URL{Scheme: "spiffe", Host: "example.org"}
	a.authorities = append(a.authorities, issue(&x509.Certificate{
		Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"SPIFFE"}, SerialNumber: time.Now().String()},
		URIs:    []*url.URL{domain}, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil))
	var bundle, text []byte
	for _, each := range a.authorities {
		bundle = append(bundle, each.certificate.Raw...)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: each.certificate.Raw})...)
	}
	check(os.WriteFile(os.Args[3], text, 0o644))
	for _, svid := range a.svids {
		svid.Bundle = bundle
	}
}

// Signs other certificates with the newest authority.
func (a *api) rotate() {
	signer := a.authorities[len(a.authorities)-1]
	var bundle []byte
	for _, each := range a.authorities {
		bundle = append(bundle, each.certificate.Raw...)
	}
	a.svids = nil
	for _, id := range ids {
		parsed, err := url.Parse(id)
		check(err)
		leaf := issue(&x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"SPIRE"}},
			URIs: []*url.URL{parsed}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, &signer)
		key, err := x509.MarshalPKCS8PrivateKey(leaf.key)
		check(err)
		a.svids = append(a.svids, &workload.X509SVID{SpiffeId: id, X509Svid: leaf.certificate.Raw, X509SvidKey: key, Bundle: bundle})
	}
}

func (a *api) set(line string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	switch line {
	case "rotate":
		a.rotate()
	case "authority":
		a.addAuthority()
	default:
		a.state = line
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// Returns the state as SPIRE words it, and a channel that tells of the next one.
func (a *api) admit(ctx context.Context) (<-chan struct{}, error) {
	if header, _ := metadata.FromIncomingContext(ctx); len(header["workload.spiffe.io"]) != 1 || header["workload.spiffe.io"][0] != "true" {
		return nil, status.Error(codes.InvalidArgument, "security header missing from request")
	}
	switch a.state {
	case "unregistered":
		return nil, status.Error(codes.PermissionDenied, "no identity issued")
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "could not fetch the identity")
	}
	return a.changed, nil
}

func (a *api) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	for {
		a.lock.Lock()
		changed, err := a.admit(stream.Context())
		svids := a.svids
		a.lock.Unlock()
		if err != nil {
			return err
		}
		if err := stream.Send(&workload.X509SVIDResponse{Svids: svids}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (a *api) FetchJWTSVID(ctx context.Context, request *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if _, err := a.admit(ctx); err != nil {
		return nil, err
	}
	if len(request.Audience) == 0 {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	response := &workload.JWTSVIDResponse{}
	for _, id := range ids {
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
	it := &api{signer: signer, state: "registered", changed: make(chan struct{})}
	it.addAuthority()
	it.rotate()
	listener, err := net.Listen("unix", os.Args[1])
	check(err)
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, it)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			it.set(lines.Text())
			os.Stdout.WriteString(lines.Text() + "\n")
		}
		os.Exit(0)
	}()
	check(server.Serve(listener))
}
