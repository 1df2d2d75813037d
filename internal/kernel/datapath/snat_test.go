package datapath_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// snatLimit is the maximum number of connections of a source address with an endpoint.
const snatLimit = 64000

// TestSourcePorts opens connections until every port is in use. No two share an address and port,
// the next one is refused at once, several addresses add up, and nothing is left after all have
// ended.
//
// V131 64,000 connections with one endpoint: the next one is refused
func TestSourcePorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, service string
		sources       int
	}{
		{"onearm", "10.0.0.1:80/tcp mode=onearm endpoints=192.168.1.10:8080", 1},
		{"fullnat, two addresses", "10.0.0.1:80/tcp mode=fullnat snat=10.1.0.1,10.1.0.2 endpoints=192.168.1.10:8080", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			errs := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: the namespace ends with the thread
				errs <- sourcePorts(t, c.service, c.sources)
			}()
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func sourcePorts(t *testing.T, service string, sources int) (err error) {
	total := sources * snatLimit
	l, err := lab.New(lab.Config{Connections: total + 1000})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s, err := lb.ParseService(service)
	if err != nil {
		return err
	}
	if err := errors.Join(l.Apply(s), l.Datapath.MakeTotalRoom(t.Context(), total+1000)); err != nil {
		return err
	}
	open, err := synSender(l)
	if err != nil {
		return err
	}
	seen := make(map[netip.AddrPort]bool, total)
	start, slowest := time.Now(), time.Duration(0)
	for i := range total {
		before := time.Now()
		from, ok, err := open(i)
		slowest = max(slowest, time.Since(before))
		if err != nil {
			return err
		}
		if !ok || seen[from] || from.Port() < 1024 {
			reason, _ := l.Counted()
			return fmt.Errorf("connection %d comes from %s, in use by another one: %v; %s", i, from, seen[from], reason)
		}
		seen[from] = true
	}
	t.Logf("%d connections in %v, the slowest in %v", total, time.Since(start), slowest)
	before := time.Now()
	if _, ok, err := open(total); err != nil || ok {
		return fmt.Errorf("a connection beyond the limit was opened: %s", fmt.Sprint(err))
	}
	t.Logf("refused in %v", time.Since(before))
	if reason, err := l.Counted(); err != nil || reason != "snat-ports-exhausted" {
		return fmt.Errorf("the connection beyond the limit was counted as %q, %s", reason, fmt.Sprint(err))
	}
	return portsComeBack(l, seen)
}

// portsComeBack ends all connections, and checks that all source ports are free again.
func portsComeBack(l *lab.Lab, seen map[netip.AddrPort]bool) error {
	endpoint := netip.MustParseAddrPort("192.168.1.10:8080")
	for _, want := range []uint32{snatLimit, 0} {
		for from := range seen {
			n, err := l.Datapath.SourcePorts(from.Addr(), endpoint, uint8(lb.TCP))
			if err != nil || n != want {
				return fmt.Errorf("%s has %d ports in use, want %d: %w", from.Addr(), n, want, err)
			}
			break
		}
		// a walk may miss a row of a changing table, which the next one finds
		if err := errors.Join(l.Advance(100*time.Second), l.Sweep(), l.Sweep()); err != nil {
			return err
		}
	}
	open, err := synSender(l)
	if err != nil {
		return err
	}
	if _, ok, err := open(0); err != nil || !ok {
		return fmt.Errorf("nothing is free after all have ended: %w", err)
	}
	return nil
}

// synSender returns a function that sends the SYN of client i, and returns the address and port
// that the endpoint sees. Every 20,000 clients reuse the ports of the previous ones.
func synSender(l *lab.Lab) (func(i int) (netip.AddrPort, bool, error), error) {
	p, err := pkt.Parse("tcp 1.1.0.0:4000 > 10.0.0.1:80 S")
	if err != nil {
		return nil, err
	}
	frame := l.Arriving(l.Client, p).Build()
	const source, port, synFlag = 14 + 12, 14 + 20, 2 // a RST means that it is refused
	return func(i int) (netip.AddrPort, bool, error) {
		frame[source+2] = byte(i / 20000)
		binary.BigEndian.PutUint16(frame[port:], uint16(2000+i%20000))
		out, err := l.Datapath.TestRun().Run(testrun.Input{Frame: frame, Ifindex: l.Client.Index})
		if err != nil {
			return netip.AddrPort{}, false, err
		}
		from, _ := netip.AddrFromSlice(out.Frame[source : source+4])
		return netip.AddrPortFrom(from, binary.BigEndian.Uint16(out.Frame[port:])), out.Verdict == testrun.Redirect && out.Frame[port+13] == synFlag, nil
	}, nil
}
