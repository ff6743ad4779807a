package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// address is this machine's: the API server takes no endpoints on loopback.
const address = "192.0.2.1"

// patience is the time within which what is awaited happens on a busy machine.
const patience = 2 * time.Minute

// machine has the programs that run, and clients with all rights.
type machine struct {
	folder  string
	started []*exec.Cmd
	client  *kubernetes.Clientset
	objects *dynamic.DynamicClient
	config  *rest.Config
}

// start starts a program that ends with this one. Its lines are in NAME.log of the folder.
func (m *machine) start(name, program string, arguments ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(m.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	m.started = append(m.started, command)
	return command, nil
}

// stop ends all programs, the last one first.
func (m *machine) stop() {
	for i := len(m.started) - 1; i >= 0; i-- {
		_ = m.started[i].Process.Kill()
		_ = m.started[i].Wait()
	}
}

// file writes a file of the folder, and returns its path.
func (m *machine) file(name string, content []byte) (string, error) {
	path := filepath.Join(m.folder, name)
	return path, os.WriteFile(path, content, 0o600)
}

// startKubernetes starts etcd, the API server and the controllers, and connects the clients.
func (m *machine) startKubernetes() error {
	const etcd = "http://127.0.0.1:2379"
	if _, err := m.start("etcd", "etcd", "--data-dir", filepath.Join(m.folder, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", "http://127.0.0.1:2380"); err != nil {
		return err
	}
	if err := await("etcd", func() error { return healthy(etcd + "/health") }); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	accounts, err := m.file("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	if err != nil {
		return err
	}
	password := rand.Text()
	tokens, err := m.file("tokens.csv", []byte(password+",admin,admin,system:masters\n"))
	if err != nil {
		return err
	}
	certificates := filepath.Join(m.folder, "certificates")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := m.start("api-server", self, "api-server", "--etcd-servers="+etcd, "--cert-dir="+certificates,
		"--advertise-address="+address, "--secure-port=6443", "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts,
		// Without kube-proxy, the API server finds the webhook by the endpoints of its Service.
		"--enable-aggregator-routing=true"); err != nil {
		return err
	}
	authority := filepath.Join(certificates, "apiserver.crt")
	m.config = &rest.Config{Host: "https://" + address + ":6443", BearerToken: password, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}
	err = await("the API server", func() error {
		if m.client, err = kubernetes.NewForConfig(m.config); err != nil {
			return err
		}
		_, err := m.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		return err
	})
	if err != nil {
		return err
	}
	if m.objects, err = dynamic.NewForConfig(m.config); err != nil {
		return err
	}
	kubeconfig, err := m.file("kubeconfig", fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": %q}}],
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority": %q}}]}`, password, m.config.Host, authority))
	if err != nil {
		return err
	}
	_, err = m.start("controllers", self, "controllers", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--root-ca-file="+authority,
		"--service-account-private-key-file="+accounts, "--use-service-account-credentials=false",
		"--controllers=deployment-controller,replicaset-controller,statefulset-controller,job-controller,cronjob-controller,"+
			"serviceaccount-controller,root-ca-certificate-publisher-controller,endpointslice-controller")
	return err
}

func healthy(url string) error {
	response, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// await repeats an attempt until it succeeds, and returns its last error if it never does.
func await(what string, attempt func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
