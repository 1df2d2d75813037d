// Command kubernetes has all of Kubernetes in one program: etcd, the components of the control
// plane and of a node, and kubectl. Separate programs would take eight times the disk space, and
// twice the time to link. It is a separate module because Kubernetes needs some 30 replacements.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// component returns the command of a component, or nil after it has run.
type component func() *cobra.Command

func components() map[string]component {
	return map[string]component{
		"etcd":                    func() *cobra.Command { etcdmain.Main(os.Args); return nil },
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kube-proxy":              proxy.NewProxyCommand,
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
}

// main runs a component, by the name of the program or by its first argument.
func main() {
	known := components()
	if name := filepath.Base(os.Args[0]); known[name] != nil {
		os.Args[0] = name
	} else if len(os.Args) > 1 && known[os.Args[1]] != nil {
		os.Args = os.Args[1:]
	} else {
		fmt.Fprintf(os.Stderr, "usage: kubernetes COMPONENT [flags]; components: %s\n",
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		os.Exit(2)
	}
	if command := known[os.Args[0]](); command != nil {
		os.Exit(cli.Run(command))
	}
}
