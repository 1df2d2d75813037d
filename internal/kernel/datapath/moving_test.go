package datapath

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// TestRecordedWhileMoved closes and opens connections on a slow CPU, while another one moves their
// entries as the table grows. Each RST is recorded, and both entries belong to the connection that
// was opened last.
func TestRecordedWhileMoved(t *testing.T) {
	t.Parallel()
	const clients = 100
	s := newStress(t)
	tcp := []lb.Service{s.services[0], s.services[1], s.services[4]} // default, fullnat, dsr
	// all sends a segment of every client, and repeats it if it was lost: the packet does not wait
	// long for the move of its entry.
	all := func(flags byte, seq uint32) {
		t.Helper()
		for i := range uint16(clients) {
			client, service := netip.AddrPortFrom(s.client(0).Addr(), 2000+i), tcp[int(i)%len(tcp)]
			vip := netip.AddrPortFrom(service.VIP, service.Port)
			for lost := true; lost; {
				before := s.races()
				if err := s.sendBy(s.slow, segment(client, vip, flags, seq, 0)); err != nil {
					t.Fatal(err)
				}
				lost = s.races() != before
			}
		}
	}
	var grown, failed atomic.Bool
	var mover sync.WaitGroup
	defer mover.Wait()
	defer failed.Store(true)
	mover.Go(func() {
		defer grown.Store(true)
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for s.groups < stressGroups && !failed.Load() {
			<-pace.C
			if err := s.grow(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	rounds := 0
	for ; !grown.Load(); rounds++ {
		all(tcpSYN, isn)
		for key, row := range dptest.Connections(t, s.d.collection) {
			if row.Traits&uint8(bpf.TcConnectionTraitCONN_RESTING) != 0 {
				continue // a reserved source port
			}
			if row.Flags&^uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
				t.Fatalf("round %d: %v has flags %#x after a SYN", rounds, key, row.Flags)
			}
		}
		all(tcpRST, isn+101)
		for key, row := range dptest.Connections(t, s.d.collection) {
			if row.Flags&uint8(bpf.TcConnectionFlagCONN_RESET) == 0 {
				t.Fatalf("round %d: %v has flags %#x after a RST", rounds, key, row.Flags)
			}
		}
	}
	mover.Wait()
	t.Logf("%d rounds", rounds)
	s.check()
}

// races returns the number of packets that were dropped because another CPU held their entry for
// too long.
func (s *stress) races() uint64 {
	s.t.Helper()
	drops, err := s.d.Drops()
	if err != nil {
		s.t.Fatal(err)
	}
	return drops["connection-race"]
}
