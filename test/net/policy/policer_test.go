package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestPolicer checks that a policer can be created before its service, limits an existing flow to
// its rate, survives a restart, and has no effect after it was deleted.
func TestPolicer(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create policy dns --rate=0:80kbit --pol-type=1 --block-size=1000:2000 --target=dns:2")
	r.Loxicmd("create lb %s --udp=53:5353 --name=dns --endpoints=%s", rig.VIP4, rig.Endpoints4())
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	policed := func() (p v1.Policy) {
		t.Helper()
		var list v1.PolicyList
		if err := json.Unmarshal([]byte(r.Loxicmd("get policy -o json")), &list); err != nil || len(list.PolAttr) != 1 {
			t.Fatalf("got %+v, %v, want no error, 1 element in list.PolAttr", list, err)
		}
		return list.PolAttr[0]
	}
	if p := policed(); p.Attached != 1 {
		t.Errorf("got %+v, want p.Attached == 1", p)
	}
	began := time.Now()
	sendDatagrams(t, c)
	before := policed()
	passed, most := before.Green.Bytes+before.Yellow.Bytes, 3000+10_000*uint64(time.Since(began).Seconds()+1)
	if before.Red.Packets == 0 || passed < 3000 || passed > most {
		t.Errorf("of %d packets in %v, %+v passed and %+v did not: want up to %d bytes", datagrams, time.Since(began), before.Green, before.Red, most)
	}
	if n := r.Metric("drops_total", "reason=policed"); n < float64(before.Red.Packets) {
		t.Errorf("%v packets are counted as policed, want %d", n, before.Red.Packets)
	}
	r.Kill()
	r.Restart()
	sendDatagrams(t, c)
	if after := policed(); after.Red.Packets <= before.Red.Packets || after.Attached != 1 {
		t.Errorf("after a restart %+v, before %+v", after, before)
	}
	r.Loxicmd("delete policy dns")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		got, err := rig.Datagram(c, strings.Repeat("x", 1400))
		if err == nil && !strings.HasSuffix(got, "x") {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

// datagrams is the number of datagrams that sendDatagrams sends, of 200 bytes each. At the rate of
// these tests, they take eight seconds, so a policer drops some even if a busy machine needs a
// second to send them. A queue of the kernel holds more (net.core.netdev_max_backlog).
const datagrams = 400

// sendDatagrams sends datagrams.
func sendDatagrams(t *testing.T, c net.Conn) {
	t.Helper()
	for range datagrams {
		if _, err := c.Write(make([]byte, 172)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRuleAttached checks that a policer and a mirror can be created before their rule, have no
// effect after the rule was deleted, and survive a restart.
//
// P56 A policer or mirror of a firewall rule applies to the packets that match the rule, also to
// existing connections from their next packet on
func TestRuleAttached(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	r.Loxicmd("create policy slow --rate=0:80kbit --pol-type=1 --block-size=1000:2000 --target=sourceIP:100.100.100.0/24,protocol:udp:firewall")
	r.Loxicmd("create mirror all --mirrorInfo=type:span,port:ep3 --targetObject=attachment:firewall,mirrObjName:sourceIP:100.100.100.0/24,protocol:udp,direction:in")
	attachedState := func() (p v1.Policy, m v1.Mirror) {
		t.Helper()
		var policies v1.PolicyList
		var mirrors v1.MirrorList
		err := errors.Join(json.Unmarshal([]byte(r.Loxicmd("get policy -o json")), &policies), json.Unmarshal([]byte(r.Loxicmd("get mirror -o json")), &mirrors))
		if err != nil || len(policies.PolAttr) != 1 || len(mirrors.MirrAttr) != 1 {
			t.Fatalf("got %+v, %+v, %v, want no error, 1 element in policies.PolAttr, 1 element in mirrors.MirrAttr",
				policies, mirrors, err)
		}
		return policies.PolAttr[0], mirrors.MirrAttr[0]
	}
	sendDatagrams(t, c)
	if p, m := attachedState(); p.Attached != 0 || p.Green.Packets+p.Red.Packets > 0 || m.Sync == nil || *m.Sync != 1 || m.Packets > 0 {
		t.Errorf("without the rule: %+v, %+v", p, m)
	}
	r.Loxicmd("create firewall --firewallRule=sourceIP:100.100.100.0/24,protocol:udp --allow")
	sendDatagrams(t, c)
	p, m := attachedState()
	if p.Attached != 1 || p.Green.Packets == 0 || p.Red.Packets == 0 || m.Sync == nil || *m.Sync != 0 || m.Packets < datagrams || m.Lost > 0 {
		t.Errorf("with the rule, of %d packets: %+v, %+v, %+v, %+v", datagrams, p, p.Green, p.Red, m)
	}
	r.Kill()
	sendDatagrams(t, c)
	r.Restart()
	if after, mirrored := attachedState(); after.Red.Packets <= p.Red.Packets || mirrored.Packets <= m.Packets {
		t.Errorf("without a daemon %+v and %+v have become %+v and %+v", p.Red, m, after.Red, mirrored)
	}
	p, _ = attachedState()
	sendDatagrams(t, c)
	if after, _ := attachedState(); after.Red.Packets <= p.Red.Packets || after.Attached != 1 {
		t.Errorf("after a restart %+v has become %+v, %+v", p.Red, after, after.Red)
	}
	r.Loxicmd("delete firewall --firewallRule=sourceIP:100.100.100.0/24,protocol:udp")
	p, m = attachedState()
	sendDatagrams(t, c)
	if after, mirrored := attachedState(); after.Attached != 0 || after.Red.Packets != p.Red.Packets || mirrored.Packets != m.Packets {
		t.Errorf("without the rule %+v and %+v have become %+v and %+v", p.Red, m, after.Red, mirrored)
	}
}
