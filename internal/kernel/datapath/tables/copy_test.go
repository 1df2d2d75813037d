package tables

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestServiceOfCopy checks that a record's service is found by its smallest range of ports, and
// quickly among many services: each record of a range may have another port.
func TestServiceOfCopy(t *testing.T) {
	t.Parallel()
	tables := &Tables{services: map[bpf.TcServiceKey]*service{}, vips: map[bpf.TcIpAddr]bpf.TcVip{}, ranges: map[bpf.TcServiceKey][]uint16{}}
	vip := netip.MustParseAddr("20.20.20.1")
	keyOf := func(a netip.Addr, first, last uint16) bpf.TcServiceKey {
		key := bpf.TcServiceKey{Vip: bpf.Addr(a), Port: bpf.Port(first), Protocol: uint8(lb.UDP)}
		if last > 0 {
			key.Kind = uint8(bpf.TcServiceKindSERVICE_RANGE)
		}
		return key
	}
	add := func(a netip.Addr, first, last uint16) *service {
		key := keyOf(a, first, last)
		tables.services[key] = &service{key: key, portMax: last}
		tables.count(key, 1)
		return tables.services[key]
	}
	every, narrow, one := add(vip, 1, 65535), add(vip, 5000, 6000), add(vip, 5500, 0)
	const others = 10_000
	for i := range others {
		add(netip.AddrFrom4([4]byte{20, 21, byte(i >> 8), byte(i)}), 80, 0)
	}
	find := func(port uint16) *service {
		return tables.serviceOfCopy(&report.ConnectionCopy{Protocol: lb.UDP, VIP: netip.AddrPortFrom(vip, port)})
	}
	for port, want := range map[uint16]*service{1: every, 4999: every, 5000: narrow, 5500: one, 6000: narrow, 6001: every} {
		if got := find(port); got != want {
			t.Errorf("port %d: %+v, want %+v", port, got, want)
		}
	}
	began := time.Now()
	for port := range uint16(others) {
		find(port + 1)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("%d records take %v", others, took)
	}
	delete(tables.services, every.key)
	tables.count(every.key, -1)
	if got := find(4999); got != nil || find(6000) != narrow {
		t.Errorf("after the widest range was deleted: %+v", got)
	}
}
