package hostsockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/testrun"
)

// recountPeriod is the interval of recounting sockets. It is far longer than a system call takes
// between counting a flow and storing it with the socket.
const recountPeriod = 5 * time.Second

// recountRest keeps recounts below one percent of a core.
const recountRest = 100

// leak is the number of flows by which a count is too high, and how often the count had changed
// until then.
type leak struct {
	flows   int64
	changes uint64
}

// RecountSockets corrects the counts until ctx ends. Sockets may be closed unnoticed while the
// programs are detached, or attached to another cgroup.
func (s *Sockets) RecountSockets(ctx context.Context) {
	runtime.LockOSThread() // for ThreadCPU
	defer runtime.UnlockOSThread()
	for pause := recountPeriod; monotime.Sleep(ctx, pause); {
		began := monotime.ThreadCPU()
		if err := s.Recount(); err != nil {
			s.shared.Log.Error("sockets of this machine cannot be counted", "error", err)
		}
		pause = recountPause(monotime.ThreadCPU() - began)
	}
}

// recountPause returns the time from a recount to the next one. A recount visits all sockets: a
// proxy next to the load balancer may have a million.
func recountPause(took time.Duration) time.Duration { return max(recountPeriod, recountRest*took) }

// Recount compares the counts with the existing sockets. It corrects a difference that it finds
// twice without a change in between: a socket that is being opened or closed is counted shortly
// before or after it becomes visible.
func (s *Sockets) Recount() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		return nil
	}
	before, err := s.counts()
	if err != nil || len(before) == 0 || len(before) == int(s.programs.Maps[countsMap].MaxEntries()) {
		return err // a full table has not counted all
	}
	found, err := s.find()
	if err != nil {
		return err
	}
	after, err := s.counts()
	if err != nil {
		return err
	}
	leaks := map[uint32]leak{}
	for endpoint, n := range after {
		l := leak{n.Open - int64(found[endpoint]), n.Changes}
		switch {
		case l.flows == 0 || before[endpoint].Changes != n.Changes:
		case s.leaks[endpoint] == l:
			if err := s.forget(endpoint, l.flows); err != nil {
				return err
			}
		default:
			leaks[endpoint] = l
		}
	}
	s.leaks = leaks
	return nil
}

func (s *Sockets) counts() (map[uint32]bpf.SockSocketCount, error) {
	out := map[uint32]bpf.SockSocketCount{}
	err := rows.Each(s.programs.Maps[countsMap], func(endpoint uint32, n bpf.SockSocketCount) { out[endpoint] = n })
	if err != nil {
		return nil, fmt.Errorf("read counts of sockets: %w", err)
	}
	return out, nil
}

// Flows returns the number of flows of sockets, by endpoint id.
func (s *Sockets) Flows() (map[uint32]uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		return nil, nil
	}
	counts, err := s.counts()
	flows := make(map[uint32]uint64, len(counts))
	for endpoint, n := range counts {
		flows[endpoint] = uint64(max(n.Open, 0))
	}
	return flows, err
}

// OwnSockets returns the number of flows of this machine's own sockets, by the services' endpoints.
func (s *Sockets) OwnSockets() (map[netip.AddrPort]uint64, error) {
	flows, err := s.Flows()
	out := map[netip.AddrPort]uint64{}
	for id, n := range flows {
		if o, ok := s.tables.Owner(id); ok {
			out[o.Endpoint] += n
		}
	}
	return out, err
}

// find counts the flows of all sockets, by endpoint.
func (s *Sockets) find() (map[uint32]uint64, error) {
	found := s.programs.Maps["sockets_found"]
	var stale []uint32
	err := rows.Each(found, func(endpoint uint32, _ uint64) { stale = append(stale, endpoint) })
	for _, endpoint := range stale {
		err = errors.Join(err, found.Delete(endpoint))
	}
	for _, visit := range []string{"loxilb_find_tcp", "loxilb_find_udp"} {
		if err == nil {
			err = iterate(s.programs.Programs[visit])
		}
	}
	out := map[uint32]uint64{}
	if err == nil {
		err = rows.Each(found, func(endpoint uint32, n uint64) { out[endpoint] = n })
	}
	if err != nil {
		return nil, fmt.Errorf("find sockets: %w", err)
	}
	return out, nil
}

func iterate(p *ebpf.Program) error {
	it, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return err
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	return readAll(r)
}

// readAll reads an iterator to its end. Its program writes nothing: the kernel visits a million
// sockets for each call, and then returns EAGAIN.
func readAll(r io.Reader) error {
	for {
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
}

// forget subtracts flows from the count of an endpoint.
func (s *Sockets) forget(endpoint uint32, flows int64) error {
	skb := testrun.SKB{Mark: endpoint}
	skb.CB[0] = uint32(int32(flows))
	opts := ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: skb}
	if _, err := s.programs.Programs["loxilb_forget_sockets"].Run(&opts); err != nil {
		return fmt.Errorf("forget sockets: %w", err)
	}
	return nil
}
