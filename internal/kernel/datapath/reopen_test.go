package datapath

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/test/dptest"
)

// TestReopenTwice checks that the same SYN on two CPUs at the same time, from the port of a closed
// connection, opens one connection.
func TestReopenTwice(t *testing.T) {
	t.Parallel()
	const clients, rounds = 500, 10
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80")
	all := func(flags byte, seq uint32) error {
		for i := range uint16(clients) {
			frame := dptest.TCPFrame(netip.MustParseAddr("198.51.100.1"), o.service.VIP, 2000+i, o.service.Port)
			binary.BigEndian.PutUint32(frame[14+20+4:], seq)
			frame[14+20+13] = flags
			if _, err := program(o.t, o.d).Run(&ebpf.RunOptions{Data: frame}); err != nil {
				return err
			}
		}
		return nil
	}
	syn := func() error { return all(0x02, 1000) }
	reset := func() error { return all(0x04, 1101) } // the sequence number after the SYN and its 100 bytes
	if err := syn(); err != nil {
		t.Fatal(err)
	}
	for range rounds {
		if err := reset(); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := syn(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	stats, _ := o.d.ServiceStats(compile.Key(o.service.Key))
	if want := uint64(clients * (1 + rounds)); stats.Connections != want || stats.Active != clients {
		t.Errorf("%d connections, %d active; want %d and %d", stats.Connections, stats.Active, want, clients)
	}
	for key, row := range dptest.Connections(t, o.d.collection) {
		if row.Flags&^1 != 0 {
			t.Errorf("%v: flags %#x, want those of a SYN", key, row.Flags)
		}
	}
	if n := len(dptest.Connections(t, o.d.collection)); n != 2*clients {
		t.Errorf("%d entries of %d connections", n, clients)
	}
}
