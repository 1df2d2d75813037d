package datapath

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
)

// TestWake checks that without events no endpoint has news and no waiter is woken, and that a
// handshake with an endpoint wakes the waiter once, as news of its service only.
func TestWake(t *testing.T) {
	t.Parallel()
	o := newOwnOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80")
	other, err := lb.ParseService("10.0.0.2:80/tcp endpoints=192.0.2.1:80")
	if err == nil {
		err = other.Validate()
	}
	table := compile.Service(other, nil, 0, nil)
	if err = errors.Join(err, errors.Join(o.d.Apply([]Change{{Key: table.Key, Table: &table}})...)); err != nil {
		t.Fatal(err)
	}
	clients := 0
	send := func(vip string) {
		t.Helper()
		clients++
		client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(2000+clients))
		if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: segment(client, netip.MustParseAddrPort(vip), tcpSYN, isn, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	news := func() (keys []lb.Key) {
		o.d.HandshakeNews(func(k lb.Key) { keys = append(keys, k) })
		return keys
	}
	rung := func(bell <-chan struct{}) bool {
		if bell == nil {
			t.Fatal("the programs cannot report handshakes")
		}
		select {
		case <-bell:
			return true
		case <-time.After(2 * time.Second):
			return false
		}
	}
	silent := func(bell <-chan struct{}) {
		t.Helper()
		select {
		case <-bell:
			t.Error("the bell rang without an event")
		case <-time.After(100 * time.Millisecond):
		}
	}
	if n := news(); len(n) < 2 {
		t.Errorf("services with news are %v, want both", n)
	}
	if n := news(); len(n) != 0 {
		t.Errorf("services have news without an event: %v", n)
	}
	bell := o.d.AwaitHandshakes()
	silent(bell)
	send("10.0.0.2:80")
	if !rung(bell) {
		t.Error("a handshake has woken no reader")
	}
	send("10.0.0.2:80")
	silent(bell)
	if o.d.AwaitHandshakes() != nil {
		t.Error("a reader would sleep although there are news")
	}
	want := netip.MustParseAddr("10.0.0.2")
	if n := news(); len(n) != 1 || n[0].VIP != want || n[0].Port != 80 {
		t.Errorf("%v, want 10.0.0.2:80 alone", n)
	}
	if n := news(); len(n) != 0 {
		t.Errorf("nothing has happened since: %v", n)
	}
	o.d.collection.Bell.Deafen(true)
	if n := news(); len(n) < 2 || o.d.AwaitHandshakes() != nil {
		t.Errorf("with programs that do not report services: %v, want both services each time, and no sleeping reader", n)
	}
	o.d.collection.Bell.Deafen(false)
}
