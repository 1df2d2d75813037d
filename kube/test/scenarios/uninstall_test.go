package scenarios

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestUninstall checks that the commands of docs/kubernetes.md remove the chart, and its VIPs, ARP
// answers, programs, pins, statuses and finalizers, also if its workloads were deleted before. This
// includes a service that was created on one node, in its own instance: in the controller's
// instance, only the MASTER would answer for it. Afterwards, balancers outside of the cluster serve
// the Service.
func TestUninstall(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge")
	apply(t, c, sessionDeployment)
	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	for _, tc := range []struct{ name, before, own string }{
		{"in order", "", "10.77.0.101"},
		{"pods first", "kubectl --namespace kube-system delete daemonset/loxilb deployment/loxilb-controller", "10.77.0.102"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			install(t, c)
			vip := ingress(t, c)
			create(t, c, service{name: "own:own", vips: []string{tc.own}, addresses: []string{"10.77.0.21"}, port: 8080})
			for _, address := range []string{vip, tc.own} {
				await.NoError(t, patience, func() error { return probeARP(c.LAN.Run, address) })
			}
			shell(t, c, tc.before)
			shell(t, c, removal(t))
			await.NoError(t, 30*time.Second, func() error { return uninstalled(c) })
			if out := kubectl(t, c, "get", "service", "shop", "--output=jsonpath={.metadata.finalizers}{.status}"); out != `{"loadBalancer":{}}` {
				t.Errorf("the Service has finalizers and status %s", out)
			}
			for _, node := range c.Nodes {
				checkClean(t, node)
			}
			for _, address := range []string{vip, tc.own} {
				if err := probeARP(c.LAN.Run, address); err == nil {
					t.Errorf("VIP %s still answers ARP", address)
				}
			}
		})
	}
	t.Run("outside", func(t *testing.T) { testOutside(t, c) })
}

// uninstalled returns an error if the cluster has objects of the chart.
func uninstalled(c *rig.Cluster) error {
	const kinds = "all,roles,rolebindings,clusterroles,clusterrolebindings,serviceaccounts,configmaps,secrets,leases,customresourcedefinitions"
	out, err := c.Kubectl("--namespace=kube-system", "get", kinds, "--output=name")
	for line := range strings.Lines(out) {
		if err == nil && strings.Contains(line, "loxilb") {
			err = fmt.Errorf("the cluster still has %s", line)
		}
	}
	return err
}

// checkClean checks that a node has no VIPs and no pins.
func checkClean(t testing.TB, node *rig.Node) {
	t.Helper()
	if out, err := node.Run("ip", "-o", "address", "show", "dev", "lo"); err != nil || strings.Contains(out, "10.77.0.") || strings.Contains(out, "fd77:") {
		t.Errorf("VIPs are left on lo (%v):\n%s", err, out)
	}
	if out, err := node.Run("find", "/sys/fs/bpf", "-mindepth", "2"); err != nil || out != "" { // files of the kernel itself are not in subdirectories
		t.Errorf("pins are left (%v): %s", err, out)
	}
}

// removal returns the commands of docs/kubernetes.md that remove loxilb from a cluster.
func removal(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n## Remove\n.*?```sh\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/kubernetes.md has no commands below Remove")
	}
	commands, _, _ := strings.Cut(string(block[1]), "rm -r") // that command is for each node
	return commands
}

// probeARP returns an error unless a host answers ARP for an address.
func probeARP(run func(...string) (string, error), address string) error {
	if net.ParseIP(address) == nil {
		return fmt.Errorf("%q is not an address", address)
	}
	if out, err := run("ip", "neighbour", "flush", "to", address); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	_, _ = run("ping", "-c", "1", "-W", "1", address) // only the neighbour entry counts
	out, err := run("ip", "neighbour", "show", "to", address)
	if err == nil && !strings.Contains(out, "lladdr") {
		err = fmt.Errorf("no neighbour answers: %s", out)
	}
	return err
}
