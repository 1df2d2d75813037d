package datapath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestLockedEntries checks that an entry that could not be removed, as its lock was held for too
// long, blocks neither the client's next connection nor the release of its source port.
func TestLockedEntries(t *testing.T) {
	t.Parallel()
	isReply := func(row *bpf.TcConnection) bool {
		return row.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0
	}
	for _, line := range []string{
		"10.0.0.1:53/udp endpoints=192.0.2.1:53", "10.0.0.1:53/udp mode=fullnat endpoints=192.0.2.1:53", "10.0.0.1:53/udp mode=dsr endpoints=192.0.2.1:53",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			o := newOpener(t, line)
			for _, held := range []struct {
				name string
				is   func(*bpf.TcConnection) bool
			}{
				{"client's", func(row *bpf.TcConnection) bool { return !isReply(row) }},
				{"reply's", isReply},
				{"both", func(*bpf.TcConnection) bool { return true }},
			} {
				t.Run(held.name, func(t *testing.T) { lockEntry(t, o, held.is) })
			}
		})
	}
}

func lockEntry(t *testing.T, o *opener, held func(*bpf.TcConnection) bool) {
	client, vip := netip.MustParseAddr("198.51.100.1"), o.service.VIP
	send := func() {
		t.Helper()
		if _, err := program(t, o.d).Run(&ebpf.RunOptions{Data: dptest.UDPFrame(client, vip, 2000, 53)}); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(on bool, keys []bpf.TcConnectionKey) {
		t.Helper()
		err := dptest.HoldBuckets(o.d.collection.Conntrack, on, func(_, _ int, in []bpf.TcConnectionKey) bool {
			return slices.ContainsFunc(in, func(k bpf.TcConnectionKey) bool { return slices.Contains(keys, k) })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	age := func() {
		t.Helper()
		if err := programs.New(o.d.collection, nil).Age(time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := o.d.ServiceStats(compile.Key(o.service.Key))
	send()
	age()
	var keys []bpf.TcConnectionKey
	for key, row := range dptest.Connections(t, o.d.collection) {
		if held(&row) {
			keys = append(keys, key)
		}
	}
	hold(true, keys)
	send()
	hold(false, keys)
	send()
	stats, _ := o.d.ServiceStats(compile.Key(o.service.Key))
	if n := stats.Connections - before.Connections; n != 2 || stats.Active != 1 {
		t.Errorf("%d connections, %d active; want 2 and 1", n, stats.Active)
	}
	age()
	for range 2 {
		if err := o.d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := dptest.Connections(t, o.d.collection); len(left) > 0 {
		t.Errorf("%d entries are left", len(left))
	}
	if o.service.Mode != lb.ModeFullNAT {
		return
	}
	endpoint := netip.AddrPortFrom(o.service.Endpoints[0].Addr, o.service.Endpoints[0].Port)
	if n, err := o.d.SourcePorts(vip, endpoint, uint8(lb.UDP)); err != nil || n != 0 {
		t.Errorf("%d source ports are in use, %v", n, err)
	}
}
