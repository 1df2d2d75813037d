package ha_test

import (
	"fmt"
	"strings"
	"testing"

	"loxilb/test/await"
)

// checkViews brings a node into each state, and checks that all commands report this state of its
// VIP.
func checkViews(t *testing.T, p *pair) {
	t.Helper()
	n := p.nodes[0]
	for _, c := range []struct {
		state, command string // the command leads to the state
		list, why      string // in get lb: announced or withdrawn, and the reason
		node           string // in get node
		role           string // in explain
		finding        bool   // doctor reports the VIP
		announced      string // in explain; "": from list and why
	}{
		{state: "up", list: "announced", why: "an endpoint takes connections", node: "1 announced"},
		{state: "down", command: "drain endpoint " + endpointAddr(0) + ":80", list: "withdrawn", why: "no endpoint takes connections", node: "1 not announced", finding: true},
		{state: "up again", command: "undrain endpoint " + endpointAddr(0) + ":80", list: "announced", why: "an endpoint takes connections", node: "1 announced"},
		{
			state: "refused", command: "create bgpapply %s/export --action=reject", list: "announced",
			why: "an endpoint takes connections", node: "1 announced", announced: "to nobody: policies accept no route to %s",
		},
		{state: "accepted", command: "delete bgpapply %s/export", list: "announced", why: "an endpoint takes connections", node: "1 announced"},
		{
			state: "BACKUP", command: "set hastate BACKUP", list: "announced", why: "an endpoint takes connections",
			node: "llb-inst0 BACKUP", role: "BACKUP of instance llb-inst0: this node does not answer ARP and ND",
		},
		{
			state: "FAULT", command: "set hastate FAULT", list: "withdrawn", why: "the role of this node for llb-inst0 is FAULT",
			node: "1 not announced", role: "FAULT of instance", finding: true,
		},
		{
			state: "MASTER", command: "set hastate MASTER", list: "announced", why: "an endpoint takes connections",
			node: "llb-inst0 MASTER", role: "MASTER of instance llb-inst0: this node answers ARP and ND",
		},
		{state: "drained", command: "node drain", list: "withdrawn", why: "the node is drained", node: "drained since", role: "the node is drained until: loxicmd node resume"},
		{state: "resumed", command: "node resume", list: "announced", why: "an endpoint takes connections", node: "in service"},
	} {
		router := strings.TrimSuffix(n.addr, "2") + "1"
		if c.command != "" {
			n.loxicmd("%s", strings.ReplaceAll(c.command, "%s", router))
		}
		await.NoError(t, patience, func() error {
			explained, _ := n.Command("explain", "--from="+router, "--to="+vip+":80") // exit code 4: the packet does not arrive
			if !strings.Contains(explained, c.role) {
				return fmt.Errorf("%s: explain has no %q:\n%s", c.state, c.role, explained)
			}
			sentence := vip + "/32 is not: " + c.why
			if c.list == "announced" {
				sentence = "as far as policies accept it: " + c.why
			}
			if c.announced != "" {
				sentence = strings.ReplaceAll(c.announced, "%s", router)
			}
			if !strings.Contains(explained, sentence) {
				return fmt.Errorf("%s: explain has no %q:\n%s", c.state, sentence, explained)
			}
			listed := "announced"
			if c.list == "withdrawn" {
				listed = "withdrawn: " + c.why
			}
			if out := n.loxicmd("get lb -o wide"); !strings.Contains(out, listed) {
				return fmt.Errorf("%s: get lb:\n%s", c.state, out)
			}
			if out := n.loxicmd("get node"); !strings.Contains(out, c.node) {
				return fmt.Errorf("%s: get node:\n%s", c.state, out)
			}
			if out := n.loxicmd("get status --failed"); strings.Contains(out, " failed ") {
				return fmt.Errorf("%s: get status --failed:\n%s", c.state, out)
			}
			neighbors := n.loxicmd("get bgpneighbor -o wide")
			if drained := strings.Contains(neighbors, "the node is drained until"); drained != (c.state == "drained") {
				return fmt.Errorf("%s: get bgpneighbor:\n%s", c.state, neighbors)
			}
			doctor, _ := n.Command("doctor")
			if strings.Contains(doctor, "BGP neighbor") {
				return fmt.Errorf("%s: doctor:\n%s", c.state, doctor)
			}
			if found := strings.Contains(doctor, vip+"/32 is not announced: "+c.why); found != c.finding {
				return fmt.Errorf("%s: doctor reports the VIP: %t, want %t:\n%s", c.state, found, c.finding, doctor)
			}
			return nil
		})
	}
}
