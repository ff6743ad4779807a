// Installs the chart with its webhook in a real Kubernetes and creates annotated pods there: in a Deployment, a StatefulSet, a Job and a
// CronJob. The API server and the controllers are Kubernetes' own, linked into this program, over a real etcd. Neither a kubelet nor a
// scheduler runs: this program binds the webhook's pod, starts the webhook as that pod's container says, and reports it as ready.
//
//	cluster check KEYWARD CHART       runs all checks; exit code 1 if one fails
//	cluster api-server FLAG...        the API server
//	cluster controllers FLAG...       the controllers
//
// The address 192.0.2.1 is this machine's: the API server calls no webhook on loopback. tests/cluster/run gives it to a namespace of its own.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	switch {
	case command == "api-server":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case command == "controllers":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case command == "check" && len(os.Args) == 3:
		os.Exit(check(os.Args[1], os.Args[2]))
	}
	fmt.Fprintln(os.Stderr, "usage: cluster check KEYWARD CHART")
	os.Exit(1)
}
