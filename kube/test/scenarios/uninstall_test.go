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

// TestUninstall checks that the commands of docs/kubernetes.md remove the chart and all that it put
// on the node: VIPs, ARP answers, programs, pins and stored services.
func TestUninstall(t *testing.T) {
	c := cluster(t, "bridge")
	installLoxilb(t, c)
	pods := runWeb(t, c)
	services := cells(c, pods)
	for _, s := range services {
		create(t, c, s)
	}
	node := c.Nodes[0]
	vip := services[0].vips[0]
	if err := probeARP(c.LAN.Run, vip); err != nil {
		t.Fatalf("the VIP does not answer while it is used: %v", err)
	}
	shell(t, c, removal(t))
	await.NoError(t, 30*time.Second, func() error {
		out, err := c.Kubectl("--namespace=kube-system", "get", "all,roles,rolebindings,serviceaccounts,configmaps,secrets", "--selector=app.kubernetes.io/name=loxilb", "--output=name")
		if err == nil && strings.Contains(out, "/") {
			err = fmt.Errorf("the cluster still has %s", out)
		}
		return err
	})
	clean(t, node)
	if err := probeARP(c.LAN.Run, vip); err == nil {
		t.Errorf("VIP %s still answers ARP", vip)
	}
}

// clean checks that a node has no VIPs and no pins.
func clean(t testing.TB, node *rig.Node) {
	t.Helper()
	if out, err := node.Run("ip", "-o", "address", "show", "dev", "lo"); err != nil || strings.Contains(out, "10.77.0.") || strings.Contains(out, "fd77:") {
		t.Errorf("VIPs are left on lo (%v):\n%s", err, out)
	}
	if out, err := node.Run("find", "/sys/fs/bpf", "-mindepth", "2"); err != nil || out != "" { // the kernel's own files are not in folders
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
	commands, _, _ := strings.Cut(string(block[1]), "rm -r") // which is for each node
	return commands
}

// probeARP asks who has an address, by a neighbour entry that is not there yet.
func probeARP(run func(...string) (string, error), address string) error {
	if net.ParseIP(address) == nil {
		return fmt.Errorf("%q is no address", address)
	}
	if out, err := run("ip", "neighbour", "flush", "to", address); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	_, _ = run("ping", "-c", "1", "-W", "1", address) // the answer may be refused: the neighbour counts
	out, err := run("ip", "neighbour", "show", "to", address)
	if err == nil && !strings.Contains(out, "lladdr") {
		err = fmt.Errorf("no neighbour answers: %s", out)
	}
	return err
}
