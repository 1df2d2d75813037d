package datapath

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/control/compile"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// TestListsChangeTogether exchanges both lists of a service. A source that is allowed before and
// after is always allowed. A source that is refused before and after is always refused, even if
// first one list refuses it and then the other.
func TestListsChangeTogether(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp secips=10.0.0.2 sources=198.51.100.0/24 endpoints=192.0.2.1:8080")
	long := []string{"1.0.0.0/8", "198.51.100.0/24"} // the first prefix is added long before the others, and the last one is removed long after them
	for i := range 50_000 {
		long = append(long, fmt.Sprintf("200.%d.%d.0/24", i>>8, i&0xff))
	}
	few := o.service
	many := parseChanged(t, o.service.String()+" deny=1.1.1.0/24,223.1.1.0/24", "sources=198.51.100.0/24", "sources="+strings.Join(append(long, "223.0.0.0/8"), ","))
	for i, change := range []struct {
		name string
		to   lb.Service
	}{{"a list of denied sources is added", many}, {"it is removed", few}} {
		t.Run(change.name, func(t *testing.T) {
			s := &stream{t: t, d: o.d, program: program(t, o.d), first: 1024 + i*30_000}
			before := s.refused()
			s.while(func() {
				table := compile.Service(change.to, nil, 0, nil)
				if err := o.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
					t.Error(err)
				}
			})
			if n := s.refused() - before; n != 4*s.rounds {
				t.Errorf("%d SYNs came from excluded sources and %d from an allowed one, and %d were refused", 4*s.rounds, 2*s.rounds, n)
			}
			t.Logf("%d rounds", s.rounds)
		})
	}
}

// parseChanged parses a service after a replacement in its text.
func parseChanged(t testing.TB, line, from, to string) lb.Service {
	t.Helper()
	s, err := lb.ParseService(strings.Replace(line, from, to, 1))
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stream sends SYNs of different connections.
type stream struct {
	t       testing.TB
	d       *Datapath
	program *ebpf.Program
	first   int // first port
	rounds  uint64
}

// while sends in rounds, from before f is called until after it has returned.
func (s *stream) while(f func()) {
	var calling sync.WaitGroup
	s.round()
	calling.Go(f)
	done := make(chan struct{})
	go func() { calling.Wait(); close(done) }()
	for {
		s.round()
		select {
		case <-done:
			s.round()
			return
		default:
		}
	}
}

// round sends a SYN of each source to both VIPs.
func (s *stream) round() {
	for _, vip := range []string{"10.0.0.1", "10.0.0.2"} {
		for _, client := range []string{"198.51.100.1", "1.1.1.1", "223.1.1.1"} {
			port := uint16(s.first + int(s.rounds%30_000))
			frame := dptest.TCPFrame(netip.MustParseAddr(client), netip.MustParseAddr(vip), port, 80)
			frame[14+20+13] = tcpSYN
			if _, err := s.program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.rounds++
}

// refused returns how many packets a list has refused.
func (s *stream) refused() uint64 {
	s.t.Helper()
	drops, err := s.d.Drops()
	if err != nil {
		s.t.Fatal(err)
	}
	return drops["source-denied"] + drops["source-not-allowed"]
}
