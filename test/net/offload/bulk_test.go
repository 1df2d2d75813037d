package offload_test

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestBulkIsMerged checks that a receiver on this machine can merge long segments in its queue, as
// when the kernel forwards them. Otherwise, the receiver wakes up more often, for less data.
func TestBulkIsMerged(t *testing.T) {
	const volume = 256 << 20
	r := rig.New(t, rig.Options{})
	serveStreams(t, r)
	if err := rig.SendSummed(r.Dial(rig.Join(rig.VIP4, 80)), volume); err != nil {
		t.Fatal(err)
	}
	counts := countersOf(t, r)
	segments, merged := counts["InSegs"], counts["TCPRcvCoalesce"]
	t.Logf("%d of %d segments merged", merged, segments)
	if merged < segments/3 {
		t.Errorf("%d of %d segments merged, want at least a third", merged, segments)
	}
}

// TestBulkIsQueued checks that long segments of several connections are queued at the veth to their
// endpoint, in order with the short segments between them. They are not queued if the veth has a
// queueing discipline or a program, which would get only a part of the packets.
func TestBulkIsQueued(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(testing.TB, *netnstest.Standard) // before the balancer starts
		queued  bool
	}{
		"plain":      {queued: true},
		"discipline": {prepare: addDiscipline},
		"program":    {prepare: addEgressProgram},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig.New(t, rig.Options{Before: c.prepare})
			serveStreams(t, r)
			before := sentBy(t, r.LB, "ep1")
			sendStreams(t, r)
			counts := countersOf(t, r)
			sent := sentBy(t, r.LB, "ep1") - before
			t.Logf("%d segments, %d sent by ep1, %d out of order", counts["InSegs"], sent, counts["TCPOFOQueue"])
			if queued := sent > counts["InSegs"]/2; queued != c.queued {
				t.Errorf("queued: %v, want %v: ep1 has sent %d packets, the endpoint received %d segments", queued, c.queued, sent, counts["InSegs"])
			}
			// On a busy machine, up to 0.1 % are out of order even without a queue.
			if n := counts["TCPOFOQueue"]; n > counts["InSegs"]/100 {
				t.Errorf("%d of %d segments arrived before earlier ones", n, counts["InSegs"])
			}
		})
	}
}

func addDiscipline(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	if _, err := s.LB.Run("tc", "qdisc", "add", "dev", "ep1", "root", "pfifo"); err != nil {
		t.Fatal(err)
	}
}

// addEgressProgram attaches a program to egress of ep1 that passes all packets.
func addEgressProgram(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	err := s.LB.Do(func() error {
		l, err := s.LB.Netlink().LinkByName("ep1")
		if err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
		})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = p.Close() })
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { _ = at.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func serveStreams(t *testing.T, r *rig.Rig) {
	t.Helper()
	if err := r.Endpoints[0].ServeTCP(":5001", rig.SumServer); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
}

// sendStreams sends data over several connections at the same time. The end of each write is a
// short segment.
func sendStreams(t *testing.T, r *rig.Rig) {
	t.Helper()
	const streams, writes = 8, 800
	errs := make([]error, streams)
	var all sync.WaitGroup
	for i := range streams {
		c := r.Dial(rig.Join(rig.VIP4, 80))
		all.Go(func() {
			for range writes {
				if _, errs[i] = c.Write(make([]byte, 70_000)); errs[i] != nil {
					return
				}
			}
			errs[i] = c.CloseWrite()
			_, err := io.ReadAll(c)
			errs[i] = errors.Join(errs[i], err)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
}

func countersOf(t *testing.T, r *rig.Rig) map[string]int {
	t.Helper()
	counts, err := rig.Counters(r.Endpoints[0], "snmp", "netstat")
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// sentBy returns how many packets a host has sent over an interface.
func sentBy(t *testing.T, h *netnstest.Host, name string) int {
	t.Helper()
	l, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(l.Attrs().Statistics.TxPackets)
}
