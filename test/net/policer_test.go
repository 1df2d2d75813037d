package net_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/netnstest/labtest"
)

// TestPolicer: a policer acts on a flow that is there, is there before its service is, holds its rate, outlives a restart, and lets all pass when it is gone.
func TestPolicer(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveUDPEcho()
	r.loxicmd("create policy dns --rate=0:80kbit --pol-type=1 --block-size=1000:2000 --target=dns:2")
	r.loxicmd("create lb %s --udp=53:5353 --name=dns --endpoints=%s", vip4, endpoints4())
	c := dialUDP(t, r, join(vip4, 53))
	policed := func() (p v1.Policy) {
		t.Helper()
		var list v1.PolicyList
		if err := json.Unmarshal([]byte(r.loxicmd("get policy -o json")), &list); err != nil || len(list.PolAttr) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list.PolAttr[0]
	}
	if p := policed(); p.Attached != 1 {
		t.Errorf("%+v", p)
	}
	began := time.Now()
	sent, before := flood(t, c, time.Second), policed()
	passed, most := before.Green.Bytes+before.Yellow.Bytes, 3000+10_000*uint64(time.Since(began).Seconds()+1)
	if before.Red.Packets == 0 || passed < 3000 || passed > most {
		t.Errorf("of %d packets in %v, %+v passed and %+v did not: want up to %d bytes", sent, time.Since(began), before.Green, before.Red, most)
	}
	if n := r.metric("drops_total", "reason=policed"); n < float64(before.Red.Packets) {
		t.Errorf("%v packets are counted as policed, want %d", n, before.Red.Packets)
	}
	r.Kill()
	r.restart()
	flood(t, c, time.Second/10)
	if after := policed(); after.Red.Packets <= before.Red.Packets || after.Attached != 1 {
		t.Errorf("after a restart %+v, before %+v", after, before)
	}
	r.loxicmd("delete policy dns")
	labtest.Eventually(t, patience, func(context.Context) error {
		got, err := datagram(c, strings.Repeat("x", 1400))
		if err == nil && !strings.HasSuffix(got, "x") {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

// flood sends datagrams of 200 bytes in all for a while, 1,000 a second at most.
func flood(t *testing.T, c net.Conn, while time.Duration) (sent int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(while); ; sent++ {
		select {
		case <-end:
			return sent
		case <-tick.C:
		}
		if _, err := c.Write(make([]byte, 172)); err != nil {
			t.Fatal(err)
		}
	}
}
