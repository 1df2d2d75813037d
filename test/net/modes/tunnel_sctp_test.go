package modes_test

import (
	"fmt"
	"testing"

	"loxilb/test/sctptest"
)

// TestTunnelSCTP has associations reach a service through tunnels between two balancers: those of
// one host by VXLAN, as the existing loxilb's scenario sctptunlb has them, and those of another by
// GTP-U.
func TestTunnelSCTP(t *testing.T) {
	t.Parallel()
	const messages = 100
	u := newULCL(t)
	for i := range 3 {
		sctptest.Serve(t, u.hosts[fmt.Sprintf("l3e%d", i+1)], 8080)
	}
	for i, ends := range [][2]string{{"10.10.10.59", "10.10.10.56"}, {"10.10.10.56", "10.10.10.59"}} {
		host, peer := fmt.Sprintf("llb%d", 1+i), fmt.Sprintf("llb%d", 2-i)
		u.loxicmd(host, "create vxlan 50 "+peer)
		u.loxicmd(host, "create vxlanpeer 50 "+ends[1])
		u.loxicmd(host, fmt.Sprintf("create ip 50.50.50.%d/24 vxlan50", 1+i))
	}
	u.route("llb1", "88.88.88.88/32", "50.50.50.2")
	u.loxicmd("llb1", "create session user1 88.88.88.88 --accessNetworkTunnel 1:10.10.10.56 --coreNetworkTunnel=1:10.10.10.59")
	u.loxicmd("llb1", "create sessionulcl user1 --ulclArgs=11:32.32.32.1")
	u.loxicmd("llb2", "create session user1 32.32.32.1 --accessNetworkTunnel 1:10.10.10.59 --coreNetworkTunnel=1:10.10.10.56")
	u.loxicmd("llb2", "create sessionulcl user1 --ulclArgs=11:88.88.88.88")
	u.loxicmd("llb2", "create lb 88.88.88.88 --sctp=2020:8080 --endpoints=25.25.25.1:1,26.26.26.1:1,27.27.27.1:1")
	for _, name := range []string{"ue1", "ue2"} {
		client, served := sctptest.Connect(t, u.hosts[name]), map[string]bool{}
		for i := range 3 {
			served[client.Open(i, "88.88.88.88", 2020)] = true
			client.Bulk(i, messages)
			client.BulkDone(i, messages)
			client.Close(i)
		}
		if len(served) != 3 {
			t.Errorf("associations of %s reach %v, want one for each server", name, served)
		}
	}
	for _, name := range []string{"llb1", "llb2"} {
		n := u.packets(name)
		if n["taken"] < messages || n["sent"] < messages || n["forged"]+n["failed"]+n["unclassified"] != 0 {
			t.Errorf("%s counts %v", name, n)
		}
	}
	vxlan, err := u.hosts["llb1"].Netlink().LinkByName("vxlan50")
	if err != nil {
		t.Fatal(err)
	}
	if n := vxlan.Attrs().Statistics.TxPackets; n < 3*messages/2 { // two messages in a packet at most
		t.Errorf("%d packets by VXLAN", n)
	}
}
