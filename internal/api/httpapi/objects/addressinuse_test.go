package objects_test

import (
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/lb/netobj"
	"loxilb/test/apitest"
)

// TestVIPOfAnotherHost checks that a VIP that is the address of a live host in a connected network
// is refused, except with force or for a controller.
func TestVIPOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Neighbors.Answering = []netobj.Neighbor{{Addr: netip.MustParseAddr("10.0.0.7"), Dev: "eth0", MAC: netobj.MAC{2, 0, 0, 0, 0, 7}}}
	service := func(vip, more string) string {
		return `{"serviceArguments":{"externalIP":"` + vip + `","port":80,"protocol":"tcp"` + more + `},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`
	}
	const path, taken = "/config/loadbalancer", `409 externalIP "10.0.0.7" is the address of a live host (02:00:00:00:00:07 on eth0)`
	for _, body := range []string{service("10.0.0.7", ""), `{"lbAttr":[` + service("10.0.0.8", "") + `,` + service("10.0.0.7", "") + `]}`} {
		if got := b.Answer("POST", path, body); !strings.HasPrefix(got, taken) || !strings.Contains(got, "force=true") {
			t.Errorf(`%s: got %s, want got begins with taken, "force=true" in got`, body, got)
		}
	}
	if got := b.Answer("POST", "/config/apply", `{"objects":[{"kind":"Loadbalancer","spec":`+service("10.0.0.7", "")+`}]}`); !strings.HasPrefix(got, taken) {
		t.Errorf("got %v, want got begins with taken", got)
	}
	if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
		t.Errorf("%d services exist", n)
	}
	for _, c := range [][2]string{
		{path, service("10.0.0.8", "")},                                               // not in use
		{path + "?force=true", service("10.0.0.7", "")},                               // forced
		{path, strings.Replace(service("10.0.0.7", ""), `"port":80`, `"port":81`, 1)}, // the VIP is owned by loxilb now
	} {
		if got := b.Answer("POST", c[0], c[1]); !strings.HasPrefix(got, "200") {
			t.Errorf(`got %s %s: %s, want got begins with "200"`, c[0], c[1], got)
		}
	}
	controlled := apitest.NewNet(t)
	controlled.Neighbors.Answering = b.Neighbors.Answering
	if got := controlled.Answer("POST", path, service("10.0.0.7", `,"managed":true`)); !strings.HasPrefix(got, "200") {
		t.Errorf(`got %v, want got begins with "200"`, got)
	}
}

// TestSourceOfAnotherHost checks that a source address of services and firewall rules is refused
// like a VIP, as this node announces it, too.
func TestSourceOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Neighbors.Answering = []netobj.Neighbor{{Addr: netip.MustParseAddr("10.0.0.7"), Dev: "eth0", MAC: netobj.MAC{2, 0, 0, 0, 0, 7}}}
	const rule = `{"ruleArguments":{"preference":%s},"opts":{"doSnat":true,"toIP":"10.0.0.7"}}`
	const service = `{"serviceArguments":{"externalIP":"10.0.0.8","port":%s,"protocol":"tcp","mode":1,"snatIPs":["10.0.0.7"]},` +
		`"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`
	for _, c := range []struct{ path, body, number, want string }{
		{"/config/firewall", rule, "1", `409 toIP "10.0.0.7" is the address of a live host`},
		{"/config/loadbalancer", service, "80", `409 snatIPs "10.0.0.7" is the address of a live host`},
		{"/config/firewall?force=true", rule, "1", "200"},
		{"/config/firewall", rule, "2", "200"}, // the address is owned by loxilb now
		{"/config/loadbalancer", service, "80", "200"},
	} {
		if got := b.Answer("POST", c.path, strings.Replace(c.body, "%s", c.number, 1)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s %s: got %s, want it to begin with %s", c.path, c.body, c.number, got, c.want)
		}
	}
}

// TestVIPOfMaster checks that a VIP of an instance whose master is another node, and an address
// without a known live host, are accepted.
func TestVIPOfMaster(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	host := []netobj.Neighbor{{Addr: netip.MustParseAddr("10.0.0.7"), Dev: "eth0", MAC: netobj.MAC{2, 0, 0, 0, 0, 7}}}
	service := func(name, port string) string {
		return `{"serviceArguments":{"externalIP":"10.0.0.7","port":` + port +
			`,"protocol":"tcp","name":"` + name + `"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`
	}
	post := func(path, body, want string) {
		t.Helper()
		if got := b.Answer("POST", path, body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want got begins with want", body, got)
		}
	}
	b.Neighbors.Answering = host
	post("/config/cistate", `{"instance":"mine","state":"MASTER"}`, "200")
	post("/config/cistate", `{"instance":"theirs","state":"BACKUP"}`, "200")
	post("/config/loadbalancer", service("a:mine", "80"), "409")
	post("/config/loadbalancer", service("a", "80"), "409")
	post("/config/loadbalancer", service("a:theirs", "80"), "200")

	b = apitest.NewNet(t)
	b.Neighbors.Learned = host // a stale entry
	post("/config/loadbalancer", service("a", "80"), "200")
}
