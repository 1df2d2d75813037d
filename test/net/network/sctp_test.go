package network_test

import (
	"fmt"
	"testing"

	"loxilb/test/sctptest"
)

// TestLANSCTP checks that a client reaches endpoints in its own network by full NAT, at an address
// of the balancer in this network, as in the existing loxilb's scenario sctpfullnatl2.
func TestLANSCTP(t *testing.T) {
	t.Parallel()
	const messages = 100
	c := newCluster(t)
	endpoints := []string{"other", "c12"} // each has one address, from which it answers
	var list string
	for _, name := range endpoints {
		sctptest.Serve(t, c.hosts[name], 38412)
		list += fmt.Sprintf(",%s:1", clusterAddress(name, false))
	}
	if out, err := c.Command("create", "lb", "192.168.0.1", "--sctp=38412:38412", "--mode=fullnat", "--endpoints="+list[1:]); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"node2", "c11"} {
		client, served := sctptest.Connect(t, c.hosts[name]), map[string]bool{}
		for i := range endpoints {
			served[client.Open(i, "192.168.0.1", 38412, clusterAddress(name, false))] = true
			client.Bulk(i, messages)
			client.BulkDone(i, messages)
			client.Close(i)
		}
		if len(served) != len(endpoints) {
			t.Errorf("associations of %s reach %v, want one for each endpoint", name, served)
		}
	}
}
