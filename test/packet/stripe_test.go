package packet

import (
	"fmt"
	"runtime"
	"testing"

	"loxilb/internal/kernel/datapath"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// TestPortStripe opens more connections than a node of a cluster has source ports. The node first
// uses its own ports, including the client's port if it is one of them, and then others.
func TestPortStripe(t *testing.T) {
	t.Parallel()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- fillStripe(t)
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func fillStripe(t *testing.T) error {
	const stripe, own, more = 3, (65536 - 1024) / datapath.PortStripes, 500
	l, err := lab.New(lab.Config{Connections: 1 << 15, PortStripe: stripe + 1})
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := lb.ParseService("10.0.0.1:80/tcp mode=fullnat endpoints=192.168.1.10:8080")
	if err == nil {
		err = l.Apply(s)
	}
	if err != nil {
		return err
	}
	used, foreign, missed := map[uint64]bool{}, 0, 0
	for i := range own + more {
		client := 1024 + i*7%60_000
		p, err := pkt.Parse(fmt.Sprintf("tcp 1.1.%d.%d:%d > 10.0.0.1:80 S", i>>8, i&255, client))
		if err != nil {
			return err
		}
		res, err := l.Send(l.Client, l.Arriving(l.Client, p).Build())
		if err != nil {
			return err
		}
		if res.Verdict != "out" {
			return fmt.Errorf("connection %d: %s %s", i, res.Verdict, res.Reason)
		}
		port := pkt.Decode(res.Frame).Num(pkt.SrcPort)
		inStripe := port%datapath.PortStripes == stripe
		switch {
		case used[port]:
			return fmt.Errorf("connection %d: port %d belongs to another connection", i, port)
		case client%datapath.PortStripes == stripe && !used[uint64(client)] && port != uint64(client):
			return fmt.Errorf("connection %d: got port %d, want the client's port %d", i, port, client)
		case !inStripe && i < own/2:
			return fmt.Errorf("connection %d: port %d is not of this node's stripe", i, port)
		case !inStripe:
			foreign++
			if i < own {
				missed++
			}
		}
		used[port] = true
	}
	if foreign < more || foreign > own/8 {
		t.Errorf("%d of %d connections have ports of other stripes, want at least %d", foreign, own+more, more)
	}
	// A search that misses hardly any of the last free ports is long, and once there are none, each
	// connection pays for it.
	if missed < own/256 {
		t.Errorf("%d of the first %d connections have ports of other stripes, a short search misses %d", missed, own, own/128)
	}
	return nil
}
