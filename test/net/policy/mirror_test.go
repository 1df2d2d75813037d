package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
)

// TestMirror checks that copies of an existing flow's packets, in both directions, arrive at a
// port, with a VLAN tag, and by VXLAN. All packets of the flow are answered meanwhile.
func TestMirror(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --name=dns --endpoints=31.31.31.1:1", rig.VIP4)
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	if _, err := rig.Datagram(c, "first"); err != nil {
		t.Fatal(err)
	}
	to, back := "100.100.100.1."+strings.Split(c.LocalAddr().String(), ":")[1]+" > "+rig.VIP4+".53", "31.31.31.1.5353 > 100.100.100.1"
	for _, m := range []struct{ info, filter, has string }{
		{"type:0,port:ep3", "udp", "IPv4"},
		{"type:rspan,port:ep3,vlan:7", "vlan 7", "vlan 7"},
		{"type:vxlan,remoteIP:17.17.17.1,sourceIP:17.17.17.254,tunnelID:9", "udp port 4789", "vni 9"},
	} {
		r.Loxicmd("create mirror m --mirrorInfo=%s --targetObject=attachement:2,mirrObjName:dns", m.info)
		seen := make(chan error, 1)
		var shown string
		go func() {
			var err error
			shown, err = r.Endpoints[2].Run("timeout", "20", "tcpdump", "-lnne", "-i", "eth0", "-c", "6", m.filter)
			seen <- err
		}()
		tick := time.NewTicker(20 * time.Millisecond)
		for done := false; !done; {
			if got, err := rig.Datagram(c, "hello"); err != nil || got != "ep1: hello" {
				t.Errorf(`%s: got %q, %v, want no error, got == "ep1: hello"`, m.info, got, err)
			}
			select {
			case err := <-seen:
				if err != nil {
					t.Errorf("%s: %v", m.info, err)
				}
				done = true
			case <-tick.C:
			}
		}
		tick.Stop()
		for _, want := range []string{to, back, m.has} {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: copies have no %q:\n%s", m.info, want, shown)
			}
		}
		var list v1.MirrorList
		if err := json.Unmarshal([]byte(r.Loxicmd("get mirror -o json")), &list); err != nil || len(list.MirrAttr) != 1 {
			t.Fatalf("got %+v, %v, want no error, 1 element in list.MirrAttr", list, err)
		}
		if got := list.MirrAttr[0]; got.Packets < 6 || got.Lost > 0 || got.Attached != 1 || got.Sync == nil || *got.Sync != 0 {
			t.Errorf("%s: got %+v, want got.Packets >= 6, got.Lost == 0, got.Attached == 1, got.Sync != nil, *got.Sync == 0",
				m.info, got)
		}
	}
	r.Loxicmd("delete mirror m")
	if out, err := r.LB.Run("ip", "-o", "link", "show", "type", "vxlan"); err != nil || out != "" {
		t.Errorf("the tunnel of the mirror remains: %s, %v", out, err)
	}
	if out, err := r.Command("create", "mirror", "bad", "--mirrorInfo=type:1,port:ep3", "--targetObject=attachement:1,mirrObjName:client"); err == nil {
		t.Errorf("RSPAN without a VLAN was accepted: %s", out)
	}
}
