package network_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/status"
	"loxilb/internal/lb/netobj"
	"loxilb/internal/lb/policy"
	"loxilb/test/apitest"
)

// TestNetObjectRequests checks that created objects are stored, and that objects of others in the
// kernel are refused, and deleted only by name.
func TestNetObjectRequests(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	must := func(a netobj.Address, err error) netobj.Address {
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	b.Addresses.Objects = []netobj.Address{must(netobj.ParseAddress("eth0", "10.0.0.9/24")), must(netobj.ParseAddress("lo", "20.20.20.1/32"))}
	other, err := netobj.ParseRoute("10.9.0.0/16", "10.0.0.9", "")
	if err != nil {
		t.Fatal(err)
	}
	metric := other
	metric.Metric = 100
	b.Routes.Objects = []netobj.Route{metric, other}
	learned, err := netobj.ParseNeighbor("10.0.0.7", "eth0", "02:00:00:00:00:07")
	if err != nil {
		t.Fatal(err)
	}
	b.Neighbors.Learned = []netobj.Neighbor{learned}
	b.MustPost(`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.2","targetPort":80,"weight":1}]}`)
	const ok = `200 {"result":"Success"}`
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/config/ipv4address", `{"dev":"eth0","ipAddress":"10.0.0.1/24"}`, ok},
		{"POST", "/config/ipv4address", `{"dev":"eth0","ipAddress":"10.0.0.1/24"}`, "409 ipv4address 10.0.0.1/24 eth0 exists already with the same content"},
		{"POST", "/config/ipv4address", `{"dev":"eth0","ipAddress":"10.0.0.9/24"}`, "409 ipv4address 10.0.0.9/24 eth0 exists already with the same content"},
		{"POST", "/config/ipv4address", `{"dev":"eth9","ipAddress":"10.0.0.1/24"}`, "404 there is no interface eth9"},
		{"POST", "/config/ipv4address", `{"dev":"eth0","ipAddress":"10.0.0.1/24","more":1}`, `400 unknown property "more"`},
		{"POST", "/config/ipv4address", `{"DEV":"eth0","ipaddress":"2001:db8::1/64"}`, ok},
		{"POST", "/config/route", `{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","protocol":"static"}`, ok},
		{"POST", "/config/route", `{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.253"}`, ok},
		{
			"POST", "/config/route", `{"destinationIPNet":"10.9.0.0/16","gateway":"10.0.0.8"}`,
			"409 the kernel has route 10.9.0.0/16 via 10.0.0.9 in its place, which loxilb has not made: delete that object first",
		},
		{"POST", "/config/neighbor", `{"ipAddress":"10.0.0.7","dev":"eth0","macAddress":"02:00:00:00:00:01"}`, ok},
		{"POST", "/config/neighbor", `{"ipAddress":"10.0.0.7","dev":"eth0"}`, `400 macAddress "" is not a MAC address (allowed: six bytes, as in 00:11:22:aa:bb:cc)`},
		{"DELETE", "/config/ipv4address/10.0.0.1/24/dev/eth0", "", ok},
		{"DELETE", "/config/ipv4address/10.0.0.1/24/dev/eth0", "", "200 ipv4address 10.0.0.1/24 eth0 does not exist"},
		{"DELETE", "/config/ipv4address/10.0.0.9/24/dev/eth0", "", ok},
		{"DELETE", "/config/ipv4address/2001:db8::1/64/dev/eth0", "", ok},
		{"DELETE", "/config/ipv4address/20.20.20.1/32/dev/lo", "", "409 address 20.20.20.1 of lo is the VIP of a service: delete the service"},
		{"POST", "/config/ipv4address", `{"dev":"lo","ipAddress":"20.20.20.1/32"}`, ok}, // stays when the service is deleted
		{"POST", "/config/ipv4address", `{"dev":"lo","ipAddress":"20.20.20.1/32"}`, "409 ipv4address 20.20.20.1/32 lo exists already with the same content"},
		{"DELETE", "/config/ipv4address/20.20.20.1/32/dev/lo", "", ok}, // which the service still has
		{"DELETE", "/config/ipv4address/20.20.20.1/32/dev/lo", "", "409 address 20.20.20.1 of lo is the VIP of a service: delete the service"},
		{
			"DELETE", "/config/ipv4address/10.0.0.1/99/dev/eth0", "",
			`400 ipAddress "10.0.0.1/99" is not an address with the length of its network (allowed: as in 10.0.0.1/24 or 2001:db8::1/64)`,
		},
		{"DELETE", "/config/route/destinationIPNet/10.1.0.0/16", "", ok},
		{"DELETE", "/config/route/destinationIPNet/10.1.0.0/16", "", "200 route 10.1.0.0/16 does not exist"},
		{"DELETE", "/config/route/destinationIPNet/10.9.0.0/16", "", ok},
		{"DELETE", "/config/neighbor/10.0.0.7/dev/eth0", "", ok},
		{"DELETE", "/config/neighbor/10.0.0.7/dev/eth0", "", "200 neighbor 10.0.0.7 eth0 does not exist"},
	} {
		if got := b.Answer(c.method, c.path, c.body); got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.method, c.path, c.body, got, c.want)
		}
	}
	if len(b.Addresses.Objects) != 1 || len(b.Routes.Objects) != 1 || b.Routes.Objects[0] != metric || len(b.Neighbors.Learned) != 0 {
		t.Errorf("the kernel has %v, %v, %v", b.Addresses.Objects, b.Routes.Objects, b.Neighbors.Learned)
	}
	now := b.Store.Snapshot()
	if n := b.Store.Addresses.Len(now) + b.Store.Routes.Len(now) + b.Store.Neighbors.Len(now); n != 0 {
		t.Errorf("%d objects are still wanted", n)
	}
}

// TestBridgeRequests checks VLANs, tunnels and forwarding entries, and what is deleted with them.
func TestBridgeRequests(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Vlans.Objects = []netobj.VLAN{{ID: 7}, {ID: 8, LinkType: "dummy"}}
	const ok = `200 {"result":"Success"}`
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/config/vlan", `{"vid":100}`, ok},
		{"POST", "/config/vlan", `{"vid":7}`, "409 vlan 7 exists already with the same content"},
		{"POST", "/config/vlan", `{"vid":8}`, "409 the kernel has vlan vlan8 (a dummy) in its place, which loxilb has not made: delete that object first"},
		{"POST", "/config/vlan", `{}`, `400 vid "0" is not the number of a VLAN (allowed: 1 to 4094)`},
		{"POST", "/config/vlan/100/member", `{"dev":"eth0","tagged":true}`, ok},
		{"POST", "/config/vlan/101/member", `{"dev":"eth0"}`, "404 there is no interface vlan101"},
		{"POST", "/config/vlan/x/member", `{"dev":"eth0"}`, `400 vlan_id "x" is not the number of a VLAN (allowed: 1 to 4094)`},
		{"DELETE", "/config/vlan/100/member/eth0/tagged/false", "", "200 vlanmember 100 eth0 does not exist"},
		{"DELETE", "/config/vlan/100/member/eth0/tagged/maybe", "", `400 tagged "maybe" is not a choice (allowed: true, false)`},
		{"POST", "/config/ipv4address", `{"dev":"vlan100","ipAddress":"10.0.0.1/24"}`, ok},
		{"POST", "/config/fdb", `{"dev":"eth0","macAddress":"02:00:00:00:00:01"}`, ok},
		{"POST", "/config/fdb", `{"dev":"vlan100","macAddress":"02:00:00:00:00:01"}`, ok},
		{"POST", "/config/tunnel/vxlan", `{"vxlanID":78,"epIntf":"eth0"}`, ok},
		{"POST", "/config/tunnel/vxlan", `{"vxlanID":79,"epIntf":"eth9"}`, "404 there is no interface eth9"},
		{"POST", "/config/tunnel/vxlan", `{"vxlanID":78,"epIntf":"eth9"}`, "404 there is no interface eth9"},
		{"POST", "/config/tunnel/vxlan/78/peer", `{"peerIP":"10.0.0.2"}`, ok},
		{"POST", "/config/tunnel/vxlan/79/peer", `{"peerIP":"10.0.0.2"}`, "404 there is no interface vxlan79"},
		{"DELETE", "/config/tunnel/vxlan/78/peer/10.0.0.3", "", "200 vxlanpeer 78 10.0.0.3 does not exist"},
		{"DELETE", "/config/vlan/100", "", ok},
		{"DELETE", "/config/vlan/7", "", ok},
		{"DELETE", "/config/vlan/7", "", "200 vlan 7 does not exist"},
		{"DELETE", "/config/tunnel/vxlan/78", "", ok},
		{"DELETE", "/config/fdb/02:00:00:00:00:01/dev/eth0", "", ok},
	} {
		if got := b.Answer(c.method, c.path, c.body); got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.method, c.path, c.body, got, c.want)
		}
	}
	now, s := b.Store.Snapshot(), b.Store
	if n := s.VLANs.Len(now) + s.Members.Len(now) + s.VXLANs.Len(now) + s.Peers.Len(now) + s.FDBs.Len(now) + s.Addresses.Len(now); n != 0 {
		t.Errorf("%d objects are still wanted", n)
	}
	b.Vlans.Objects, b.Vlans.Members.Objects = []netobj.VLAN{{ID: 100}}, []netobj.VLANMember{{VLAN: 100, Dev: "eth0", Tagged: true}}
	b.Vxlans.Objects, b.Vxlans.Peers.Objects = []netobj.VXLAN{{ID: 78, Dev: "eth0"}}, []netobj.VXLANPeer{{ID: 78, Peer: netip.MustParseAddr("10.0.0.2")}}
	b.Fdbs.Objects = []netobj.FDB{{Dev: "eth0", MAC: netobj.MAC{2, 0, 0, 0, 0, 1}}}
	for path, want := range map[string]string{
		"/config/vlan/all": `{"vlanAttr":[{"dev":"vlan100","member":[{"dev":"eth0","tagged":true}],"vid":100,"vlanStatistic":{"inBytes":1,` +
			`"inPackets":2,"outBytes":3,"outPackets":4}}]}`,
		"/config/tunnel/vxlan/all": `{"vxlanAttr":[{"epIntf":"eth0","peerIP":["10.0.0.2"],"vxlanID":78,"vxlanName":"vxlan78"}]}`,
		"/config/fdb/all":          `{"fdbAttr":[{"dev":"eth0","macAddress":"02:00:00:00:00:01"}]}`,
	} {
		if got := strings.ReplaceAll(b.Answer("GET", path, ""), "\n", ""); got != "200 "+want {
			t.Errorf("%s:\n%s, want\n%s", path, got, want)
		}
	}
}

// TestNetObjectRefusedByKernel checks that an object that the kernel refuses is answered with the
// kernel's error, and is not stored.
func TestNetObjectRefusedByKernel(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	for err, want := range map[error]string{
		fmt.Errorf("the kernel refuses it: %w", unix.EOPNOTSUPP): "400 the kernel refuses it: operation not supported",
		fmt.Errorf("the kernel refuses it: %w", unix.EPERM):      "503 the kernel refuses it: operation not permitted",
		&netobj.NoDeviceError{Name: "eth0"}:                      "404 there is no interface eth0",
		&netobj.ForeignError{Kind: "route", Has: "x"}:            "409 the kernel has route x in its place, which loxilb has not made: delete that object first",
	} {
		b.Fake.ApplyErr = &status.Error{Failures: []status.Status{{ID: status.ID{Kind: "route", Key: "10.1.0.0/16"}, Err: err, Next: time.Now()}}}
		if got := b.Answer("POST", "/config/route", `{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}`); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		if n := b.Store.Routes.Len(b.Store.Snapshot()); n != 0 {
			t.Errorf("%v: the route is still stored", err)
		}
	}
	b.Fake.ApplyErr = nil
	if got := b.Answer("POST", "/config/route", `{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}`); !strings.HasPrefix(got, "200") {
		t.Fatalf(`got %v, want got begins with "200"`, got)
	}
	b.Fake.ApplyErr = &status.Error{Failures: []status.Status{{ID: status.ID{Kind: "route", Key: "10.1.0.0/16"}, Err: unix.ENETUNREACH, Next: time.Now()}}}
	if got := b.Answer("POST", "/config/route", `{"destinationIPNet":"10.1.0.0/16","gateway":"10.7.0.1"}`); got != "400 network is unreachable" {
		t.Errorf("a change that the kernel refuses: %s", got)
	}
	if kept, ok := b.Store.Routes.Get(b.Store.Snapshot(), "10.1.0.0/16"); !ok || kept.Gateway.String() != "10.0.0.254" {
		t.Errorf("after a change that the kernel refused, the store has %v, %t", kept, ok)
	}
	b.Fake.ApplyErr = nil
	b.Routes.Err = errors.New("list routes: no memory")
	for method, path := range map[string]string{"GET": "/config/route/all", "DELETE": "/config/route/destinationIPNet/10.1.0.0/16"} {
		if got := b.Answer(method, path, ""); got != "503 list routes: no memory" {
			t.Errorf(`%s: got %s, want "503 list routes: no memory"`, method, got)
		}
	}
}

// TestOwnAddress checks that a request cannot delete the address that it was sent to, unless
// forced.
func TestOwnAddress(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	a, err := netobj.ParseAddress("eth0", "10.0.0.1/24")
	if err != nil {
		t.Fatal(err)
	}
	b.Addresses.Objects = []netobj.Address{a}
	for _, c := range []struct {
		query string
		code  int
	}{{"", 409}, {"?force=false", 409}, {"?force=true", 200}} {
		r := httptest.NewRequest("DELETE", "http://127.0.0.1:11111"+httpapi.BaseURL+"/config/ipv4address/10.0.0.1/24/dev/eth0"+c.query, nil)
		r = r.WithContext(transport.WithPeer(contextAt(r, "10.0.0.1:11111"), b.Peer))
		w := httptest.NewRecorder()
		if b.Http.ServeHTTP(w, r); w.Code != c.code {
			t.Errorf("%q: got %d %s, want code %d", c.query, w.Code, w.Body, c.code)
		}
	}
}

// TestNetObjectsCut checks that objects that carry connections of this machine itself are not
// deleted unless forced, by their own path or in a list, also if others created them. The error and
// a plan name the connections.
func TestNetObjectsCut(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Created = true
	b.Fake.Accepted = []policy.AcceptedConnection{{
		Remote: netip.MustParseAddrPort("203.0.113.9:5000"), Local: netip.MustParseAddrPort("10.0.0.1:22"), Interface: "eth0", Out: "eth0", Route: netip.MustParsePrefix("203.0.113.0/24"),
	}}
	const who = "the ssh session from 203.0.113.9:5000 to 10.0.0.1:22"
	address := netobj.Address{Dev: "eth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}
	const route, other = `{"destinationIPNet":"203.0.113.0/24","gateway":"10.0.0.254"}`, `{"destinationIPNet":"203.0.113.0/24","gateway":"10.0.0.253"}`
	const list = `{"objects":[{"kind":"Route","spec":` + route + `}],"remove":true`
	const member = `{"dev":"eth0","tagged":false}`
	for _, c := range []struct{ method, path, body, want string }{
		{"DELETE", "/config/ipv4address/10.0.0.1/24/dev/eth0", "", "409 deleting ipv4address 10.0.0.1/24 eth0 would end " + who},
		{"POST", "/config/route", route, "200 "},
		{"DELETE", "/config/route/destinationIPNet/203.0.113.0/24", "", "409 deleting route 203.0.113.0/24 via 10.0.0.254 would end " + who},
		{"POST", "/config/route", other, "409 changing route 203.0.113.0/24 via 10.0.0.254 would end " + who},
		{"POST", "/config/apply", list + `}`, "409 deleting route 203.0.113.0/24 via 10.0.0.254 would end " + who},
		{"POST", "/config/apply", list + `,"dryRun":true}`, `200 "cuts":["` + who},
		{"POST", "/config/vlan", `{"vid":100}`, "200 "},
		{"POST", "/config/vlan/100/member", member, "409 putting eth0 into vlan100 would end " + who},
		{"POST", "/config/vlan/100/member", `{"dev":"eth0","tagged":true}`, "200 "},
		{"POST", "/config/vlan/100/member?force=true", member, "200 "},
		{"POST", "/config/route?force=true", other, "200 "},
		{"POST", "/config/apply", list + `,"force":true}`, "200 "},
		{"DELETE", "/config/ipv4address/10.0.0.1/24/dev/eth0?force=true", "", "200 "},
	} {
		b.Addresses.Objects, b.Vlans.Objects = []netobj.Address{address}, []netobj.VLAN{{ID: 100}}
		if c.path == "/config/vlan" {
			b.Vlans.Objects = nil
		}
		code, text, _ := strings.Cut(c.want, " ")
		if got := b.Answer(c.method, c.path, c.body); !strings.HasPrefix(got, code) || !strings.Contains(got, text) {
			t.Errorf("%s %s %s: %s, want %s", c.method, c.path, c.body, got, c.want)
		}
	}
}

// TestNetObjectLists checks that lists have the contract's property names.
func TestNetObjectLists(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Addresses.Objects = []netobj.Address{{Dev: "eth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}}
	b.Routes.Objects = []netobj.Route{
		{Destination: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.254"), Protocol: 4},
		{Destination: netip.MustParsePrefix("10.0.0.7/32"), Protocol: 2, Metric: 9},
	}
	b.Neighbors.Learned = []netobj.Neighbor{{Addr: netip.MustParseAddr("10.0.0.7"), Dev: "eth0", MAC: netobj.MAC{2, 0, 0, 0, 0, 7}}}
	b.Fake.Table.Want(status.ID{Kind: "interface", Key: "eth0"}, 1)
	b.Fake.Table.Succeeded(status.ID{Kind: "interface", Key: "eth0"}, 1)
	for path, want := range map[string]string{
		"/config/ipv4address/all": `{"ipAttr":[{"dev":"eth0","ipAddress":["10.0.0.1/24"],"sync":0}]}`,
		"/config/neighbor/all":    `{"neighborAttr":[{"dev":"eth0","ipAddress":"10.0.0.7","macAddress":"02:00:00:00:00:07"}]}`,
		"/config/route/all": `{"routeAttr":[{"destinationIPNet":"10.1.0.0/16","dev":"eth0","flags":"Ind","gateway":"10.0.0.254","protocol":4,` +
			`"statistic":{"bytes":0,"packets":0},"sync":0},` +
			`{"destinationIPNet":"10.0.0.7/32","dev":"eth0","flags":"Self Host","gateway":"","metric":9,"protocol":2,"statistic":{"bytes":0,"packets":0},"sync":0}]}`,
		"/config/port/all": `{"portAttr":[{"DataplaneSync":0,"portHardwareInformation":{"link":true,"macAddress":"02:00:00:00:00:09",` +
			`"master":"vlan100","mtu":1500,"rawMacAddress":[2,0,0,0,0,9],"real":"","state":true,"tunnelId":0},` +
			`"portL2Information":{"isPvid":true,"vid":100},"portL3Information":{"IPv4Address":["10.0.0.1/24"],"IPv6Address":["2001:db8::1/64"],` +
			`"routed":true},"portName":"eth0","portNo":2,` +
			`"portSoftwareInformation":{"bpfLoaded":true,"osId":2,"portActive":true,"portProp":0,"portType":9,"xdp":"native"},` +
			`"portStatisticInformation":{"rxBytes":1,"rxErrors":3,"rxPackets":2,"txBytes":4,"txErrors":6,"txPackets":5},"zone":"root"}]}`,
	} {
		if got := strings.ReplaceAll(b.Answer("GET", path, ""), "\n", ""); got != "200 "+want {
			t.Errorf("%s:\n%s, want\n%s", path, got, want)
		}
	}
	b.Addresses.Objects, b.Routes.Objects, b.Neighbors.Learned = nil, nil, nil
	for path, want := range map[string]string{
		"/config/ipv4address/all": `{"ipAttr":[]}`, "/config/neighbor/all": `{"neighborAttr":[]}`, "/config/route/all": `{"routeAttr":[]}`,
	} {
		if got := strings.ReplaceAll(b.Answer("GET", path, ""), "\n", ""); got != "200 "+want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// contextAt returns the context of a request that was received at an address.
func contextAt(r *http.Request, at string) context.Context {
	return context.WithValue(r.Context(), http.LocalAddrContextKey, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at)))
}
