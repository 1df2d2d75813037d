package datapath_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/pkt"
	"loxilb/test/dptest/programs"
	"loxilb/test/packet/lab"
)

const hopService = "10.0.0.1:80/tcp endpoints=192.168.1.10:8080,192.168.1.11:8080"

// hopFrame returns the SYN of a client.
func hopFrame(l *lab.Lab, client int) ([]byte, error) {
	p, err := pkt.Parse(fmt.Sprintf("tcp 1.1.%d.%d:4000 > 10.0.0.1:80 S", client/250, client%250+1))
	if err != nil {
		return nil, err
	}
	return l.Arriving(l.Client, p).Build(), nil
}

// openHops opens connections of n clients, beginning with first.
func openHops(l *lab.Lab, first, n int) error {
	for i := range n {
		frame, err := hopFrame(l, first+i)
		if err != nil {
			return err
		}
		res, err := l.Send(l.Client, frame)
		if err != nil {
			return err
		}
		if res.Verdict != "out" {
			return fmt.Errorf("connection %d: %s %s", first+i, res.Verdict, res.Reason)
		}
	}
	return nil
}

// TestNextHopsAreShared checks that hundreds of connections to two endpoints have two next hops.
func TestNextHopsAreShared(t *testing.T) {
	t.Parallel()
	inLab(t, hopService, func(l *lab.Lab) error {
		if err := openHops(l, 0, 400); err != nil {
			return err
		}
		ways, err := l.Programs().NextHops()
		if err == nil && len(ways) != 2 {
			err = fmt.Errorf("there are %d next hops, want 2: %+v", len(ways), ways)
		}
		return err
	})
}

// TestNextHopsFull checks that packets leave without free rows, with a lookup each, and are
// counted. Rows that were not confirmed for a long time are reused, also if the clock has advanced
// by half of its range since.
func TestNextHopsFull(t *testing.T) {
	t.Parallel()
	const long = 5 << 13 // four epochs and one more
	for name, age := range map[string]uint32{"long": long, "half a turn": 1<<31 + long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNextHopsFull(t, age)
		})
	}
}

// testNextHopsFull is TestNextHopsFull for rows that were last confirmed this number of ticks ago.
func testNextHopsFull(t *testing.T, age uint32) {
	t.Helper()
	inLab(t, hopService, func(l *lab.Lab) error {
		run := l.Programs()
		if err := openHops(l, 0, 1); err != nil {
			return err
		}
		one, err := run.NextHops()
		if err != nil {
			return err
		}
		all := map[uint32]bpf.TcHop{}
		for _, w := range one {
			w.Key.Ifindex = 12345 // an unused index
			for i := range uint32(programs.MaxNextHops - 1) {
				all[1+i] = w
			}
		}
		wantFull := func(when string, want uint64) error {
			got, err := l.Datapath.NextHopsFull()
			if err == nil && got != want {
				err = fmt.Errorf("%s: %d packets found no room, want %d", when, got, want)
			}
			return err
		}
		if err := errors.Join(run.SetNextHops(all), l.BumpNextHops(), openHops(l, 1, 3), wantFull("at first", 3)); err != nil {
			return err
		}
		for i, w := range all {
			w.Claim = w.Claim>>32<<32 | uint64(uint32(w.Claim)-age)
			all[i] = w
		}
		if err := errors.Join(run.SetNextHops(all), openHops(l, 4, 3), openHops(l, 0, 7), wantFull("when rows are old", 3)); err != nil {
			return err
		}
		now, err := run.NextHops()
		if err != nil {
			return err
		}
		ours := 0
		for _, w := range now {
			if w.Key.Ifindex == uint32(l.Server.Index) {
				ours++
			}
		}
		if ours != 2 {
			return fmt.Errorf("%d rows serve the two endpoints, want 2", ours)
		}
		return nil
	})
}

// TestNextHopsConcurrently sends packets on several CPUs while the endpoint changes its MAC address
// hundreds of times, and routes change sometimes. Each frame has one complete address, and all have
// the last one in the end.
func TestNextHopsConcurrently(t *testing.T) {
	t.Parallel()
	inLab(t, "10.0.0.1:80/tcp endpoints=192.168.1.10:8080", func(l *lab.Lab) error {
		ns, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer ns.Close()
		const workers, each, changes = 3, 8, 300
		stop := make(chan struct{})
		errs := make([]error, workers+1)
		var work sync.WaitGroup
		for w := range workers {
			work.Go(func() {
				runtime.LockOSThread() // never unlocked: it stays in the lab's namespace
				if errs[w] = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); errs[w] == nil {
					errs[w] = sendUntil(l, w*each, each, stop)
				}
			})
		}
		for i := 1; i <= changes && errs[workers] == nil; i++ {
			errs[workers] = moveEndpoint(l, i)
		}
		close(stop)
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		for client := range workers * each {
			if err := sendAndCheck(l, client, changes); err != nil {
				return err
			}
		}
		return nil
	})
}

// manyMAC returns the endpoint's address after n changes. A mixture of two addresses would be
// recognized.
func manyMAC(n int) net.HardwareAddr {
	return net.HardwareAddr{2, byte(n), byte(n >> 8), byte(n), byte(n >> 8), byte(n)}
}

func moveEndpoint(l *lab.Lab, n int) error {
	out, err := exec.Command("ip", "neigh", "replace", "192.168.1.10", "dev", "server", "lladdr", manyMAC(n).String(), "nud", "permanent").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip neigh: %w: %s", err, out)
	}
	if n%10 == 0 {
		return l.BumpNextHops()
	}
	return l.BumpNeighbours()
}

// sendUntil sends packets of some connections repeatedly.
func sendUntil(l *lab.Lab, first, n int, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := sendAndCheck(l, first+i%n, 0); err != nil {
			return err
		}
	}
}

// sendAndCheck sends a packet. Its frame must have the endpoint's address after change number want,
// or any if want is 0.
func sendAndCheck(l *lab.Lab, client, want int) error {
	frame, err := hopFrame(l, client)
	if err != nil {
		return err
	}
	out, err := l.Datapath.TestRun().Run(testrun.Input{Frame: frame, Ifindex: l.Client.Index})
	if err != nil {
		return err
	}
	if out.Verdict != testrun.Redirect {
		return fmt.Errorf("the verdict is %d", out.Verdict)
	}
	to, from := net.HardwareAddr(out.Frame[:6]), net.HardwareAddr(out.Frame[6:12])
	if want == 0 && to.String() == l.Client.MAC.String() {
		return nil // the kernel adds the addresses, as another CPU was writing them
	}
	n := int(to[1]) | int(to[2])<<8
	first := n == 0 && to.String() == "02:00:00:00:02:10"
	if from.String() != l.Server.MAC.String() || !first && to.String() != manyMAC(n).String() || want != 0 && n != want {
		return fmt.Errorf("a frame from %v to %v", from, to)
	}
	return nil
}
