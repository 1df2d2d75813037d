package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/test/dptest"
)

var (
	broadcast = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	loMAC     = make([]byte, 6) // the MAC address of lo, where programs run on test packets
	otherMAC  = []byte{2, 0, 0, 0, 0, 9}
)

// arpFrame returns an ARP packet about an address.
func arpFrame(to []byte, operation byte, target string) []byte {
	f := append(append([]byte(nil), to...), otherMAC...)
	f = append(f, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation)
	f = append(append(f, otherMAC...), 10, 0, 0, 9, 0, 0, 0, 0, 0, 0)
	return append(f, netip.MustParseAddr(target).AsSlice()...)
}

// solicitation returns an ICMPv6 message of a type about an address. Its checksum is not checked.
func solicitation(to []byte, kind byte, target string) []byte {
	f := append(append([]byte(nil), to...), otherMAC...)
	f = append(f, 0x86, 0xdd, 6<<4, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, 24)
	f = append(f, 58, 255)
	f = append(f, netip.MustParseAddr("2001:db8::9").AsSlice()...)
	f = append(f, netip.MustParseAddr("ff02::1:ff00:1").AsSlice()...)
	f = append(f, kind, 0, 0, 0, 0, 0, 0, 0)
	return append(f, netip.MustParseAddr(target).AsSlice()...)
}

// wantDropped checks whether the program at lo drops a frame, and counts it.
func wantDropped(t *testing.T, d *Datapath, want bool, frame []byte) {
	t.Helper()
	before := dropped(t, d)
	got, err := program(t, d).Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	const shot, next = 2, ^uint32(0)
	code, n := next, uint64(0)
	if want {
		code, n = shot, 1
	}
	if counted := dropped(t, d) - before; got != code || counted != n {
		t.Errorf("returns %d, want %d; counts %d drops", int32(got), int32(code), counted)
	}
}

// TestLeases checks which requests for VIPs the packet path drops.
func TestLeases(t *testing.T) {
	t.Parallel()
	const vip, vip6, both, free = "10.0.0.100", "2001:db8::100", "10.0.0.101", "10.0.0.102"
	dir := dptest.PinDir(t)
	d, err := Load(Config{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	lease := func(a string, instances ...string) {
		t.Helper()
		if err := d.SetLeased(netip.MustParseAddr(a), instances); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(instance string, until time.Time) {
		t.Helper()
		if err := d.RenewLease(instance, until); err != nil {
			t.Fatal(err)
		}
	}
	drops := func(want bool, frame []byte) {
		t.Helper()
		wantDropped(t, d, want, frame)
	}
	request, request6 := arpFrame(broadcast, 1, vip), solicitation([]byte{0x33, 0x33, 0xff, 0, 1, 0}, 135, vip6)
	drops(false, request)
	lease(vip, "red")
	lease(vip6, "red")
	lease(both, "red", "blue")
	drops(false, request) // red is not elected
	now, past := time.Now(), time.Now().Add(-time.Second)
	renew("red", now.Add(time.Minute))
	drops(false, request)
	drops(false, request6)
	renew("red", past)
	renew("blue", now.Add(time.Minute))
	drops(true, request)
	drops(true, arpFrame(loMAC, 1, vip)) // a neighbour confirms its entry
	drops(true, request6)
	drops(true, solicitation(loMAC, 135, vip6))
	drops(false, arpFrame(broadcast, 2, vip))
	drops(false, arpFrame(otherMAC, 1, vip))
	drops(false, arpFrame(broadcast, 1, free))
	drops(false, request[:40])
	drops(false, solicitation(loMAC, 136, vip6))
	drops(false, arpFrame(broadcast, 1, both)) // by blue
	renew("blue", time.Time{})
	drops(true, arpFrame(broadcast, 1, both))
	setPort := func(on bool) {
		t.Helper()
		if err := d.SetLink(Interface{Index: 1, Name: "lo", BridgePort: on}); err != nil {
			t.Fatal(err)
		}
	}
	setPort(true)
	drops(false, request)
	setPort(false)

	d = restarted(t, d, dir)
	drops(true, request) // as before
	renew("red", time.Now().Add(time.Minute))
	drops(false, request)
	renew("red", past)
	if err := d.KeepLeased(func(a netip.Addr) bool { return a.Is6() }); err != nil {
		t.Fatal(err)
	}
	drops(false, request)
	drops(true, request6)
	if err := d.KeepLeases(nil); err != nil {
		t.Fatal(err)
	}
	drops(false, request6)
}

// TestLinks checks at which interfaces requests for a VIP are dropped, also after a restart, and
// next to leases.
func TestLinks(t *testing.T) {
	t.Parallel()
	const here, other = 1, 7 // lo, and an interface that does not exist
	vip, request := netip.MustParseAddr("10.0.0.100"), arpFrame(broadcast, 1, "10.0.0.100")
	dir := dptest.PinDir(t)
	d, err := Load(Config{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	answer := func(links ...int) {
		t.Helper()
		if err := d.SetLinks(vip, links); err != nil {
			t.Fatal(err)
		}
	}
	drops := func(want bool, frame []byte) {
		t.Helper()
		wantDropped(t, d, want, frame)
	}
	drops(false, request)
	answer(here)
	drops(false, request)
	answer(other, here)
	drops(false, request)
	answer(2, 3, 4, 5, 6, 7, 8, 9)
	drops(true, request)
	answer(2, 3, 4, 5, 6, 7, 8, 9, 10) // more than are checked
	drops(false, request)
	answer(other)
	drops(true, request)
	drops(true, arpFrame(loMAC, 1, vip.String()))
	drops(false, arpFrame(broadcast, 2, vip.String()))
	drops(false, arpFrame(otherMAC, 1, vip.String()))
	drops(false, arpFrame(broadcast, 1, "10.0.0.101"))
	for _, port := range []bool{true, false} {
		if err := d.SetLink(Interface{Index: here, Name: "lo", BridgePort: port}); err != nil {
			t.Fatal(err)
		}
		drops(!port, request)
	}
	lease := func(instances ...string) {
		t.Helper()
		if err := d.SetLeased(vip, instances); err != nil {
			t.Fatal(err)
		}
	}
	lease("red")
	if err := d.RenewLease("red", time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	answer(here)
	drops(true, request)
	lease()
	drops(false, request)
	answer(other)
	lease("red")
	lease()
	drops(true, request)
	d = restarted(t, d, dir)
	drops(true, request)
	if err := d.KeepLinks(func(netip.Addr) bool { return false }); err != nil {
		t.Fatal(err)
	}
	drops(false, request)
}

// restarted checks that an audit finds no difference, and loads the data path again.
func restarted(t *testing.T, d *Datapath, dir string) *Datapath {
	t.Helper()
	for _, c := range d.Audit(false) {
		if len(c.Differences) > 0 || c.Err != nil {
			t.Errorf("got %+v, want no c.Differences, c.Err == nil", c)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Load(Config{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
