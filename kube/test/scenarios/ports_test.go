package scenarios

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// checkSourcePorts checks that with the rule of docs/kubernetes.md, connections of the balancer on
// n1 and of kube-proxy to the same pod, both from n1's address, never have the same source port:
// answers to one would reach the other.
func checkSourcePorts(t *testing.T, c *rig.Cluster, pods map[string]rig.Pod) {
	t.Helper()
	n1, pod := c.Nodes[0], pods["n2"]
	if out, err := n1.Run("nft", documentedRule(t)); err != nil {
		t.Fatal(err, out)
	}
	create(t, c, service{mode: "onearm", number: 1, addresses: pod.Addresses, port: 8080, vips: []string{"10.77.0.120", "fd77::1:20"}})
	kubectl(t, c, "expose", "deployment", "direct-n2", "--type=NodePort", "--port=80", "--target-port=8080", "--overrides="+
		`{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`)
	nodePort := kubectl(t, c, "get", "service", "direct-n2", "--output=jsonpath={.spec.ports[0].nodePort}")

	first, last := localPorts(t, n1)
	for i, node := range n1.Addresses() {
		vip := []string{"10.77.0.120", "fd77::1:20"}[i]
		for _, tc := range []struct {
			what, address string
			from          client
			local         bool // the source port is of the kernel's range
		}{
			{"VIP", net.JoinHostPort(vip, "80"), client{"LAN host", c.LAN.DialContext}, false},
			{"VIP", net.JoinHostPort(vip, "80"), client{"n1 itself", n1.DialContext}, true},                // the socket is connected to the pod
			{"pod", net.JoinHostPort(pod.Addresses[i], "8080"), client{"n1 itself", n1.DialContext}, true}, // before kube-proxy uses its ports
			{"node port", net.JoinHostPort(node, nodePort), client{"LAN host", c.LAN.DialContext}, true},
		} {
			h := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: tc.from.dial, DisableKeepAlives: true}}
			await.NoError(t, patience, func() error { // kube-proxy is late
				_, err := whoAnswers(t.Context(), h, tc.address)
				return err
			})
			const connections = 200
			for range connections {
				port, err := sourcePort(h, tc.address)
				if err != nil {
					t.Fatalf("%s to %s: %v", tc.from.name, tc.what, err)
				}
				if local := first <= port && port <= last; local != tc.local {
					t.Errorf("%s to %s %s: the pod sees port %d; ports of the kernel are %d to %d", tc.from.name, tc.what, tc.address, port, first, last)
					break
				}
			}
		}
	}
}

// sourcePort makes a request and returns its source port as the pod sees it.
func sourcePort(h *http.Client, address string) (int, error) {
	answer, err := h.Get("http://" + address + "/port")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	name, port := "", 0
	if _, err := fmt.Fscan(answer.Body, &name, &port); err != nil {
		return 0, fmt.Errorf("the answer has no port: %w", err)
	}
	return port, nil
}

// localPorts returns the first and the last port of the kernel's range on a node.
func localPorts(t testing.TB, n *rig.Node) (first, last int) {
	t.Helper()
	text, err := n.Run("cat", "/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(text)
	if len(words) != 2 {
		t.Fatalf("ip_local_port_range is %q", text)
	}
	first, err1 := strconv.Atoi(words[0])
	last, err2 := strconv.Atoi(words[1])
	if err1 != nil || err2 != nil {
		t.Fatalf("ip_local_port_range is %q", text)
	}
	return first, last
}

// documentedRule returns the nftables rule of docs/kubernetes.md.
func documentedRule(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```nft\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/kubernetes.md has no rule")
	}
	return string(found[1])
}
