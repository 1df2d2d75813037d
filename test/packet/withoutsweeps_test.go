package packet

import (
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

// TestTableWithoutSweeps checks that a table of 4,096 entries has room for all new connections of
// TCP, UDP and ICMP without sweeps, for ten times as many connections as entries. Afterwards, the
// counters must agree with the table.
func TestTableWithoutSweeps(t *testing.T) {
	t.Parallel()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- openWithoutSweeps(t)
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

const (
	withoutSweepsConnections = 2048
	withoutSweepsTurnovers   = 10
	withoutSweepsTicks       = 1 << 31
	flowsPerSecond           = 30 // new flows per second and protocol, limited by the shares of half-open ones
)

func openWithoutSweeps(t *testing.T) (err error) {
	l, err := lab.New(lab.Config{Connections: withoutSweepsConnections, HalfOpen: 25})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, text := range []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080",
		"10.0.0.1:53/udp endpoints=192.168.1.10:53",
		"10.0.0.1:0/icmp endpoints=192.168.1.10:0",
	} {
		s, err := lb.ParseService(text)
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return err
		}
	}
	if err := l.Programs().SetSweepOverdue(withoutSweepsTicks); err != nil {
		return err
	}
	flows, began := 0, time.Now()
	for flows < withoutSweepsTurnovers*withoutSweepsConnections {
		for range flowsPerSecond {
			client := netip.AddrFrom4([4]byte{1, 1 + byte(flows>>16), byte(flows >> 8), byte(flows)})
			for _, exchange := range clientExchanges(client) {
				if err := sendAll(l, exchange); err != nil {
					return fmt.Errorf("flow %d: %w", flows, err)
				}
			}
			flows += 3
		}
		if err := l.Programs().Age(time.Second); err != nil {
			return err
		}
	}
	t.Logf("%d flows in %v", flows, time.Since(began).Round(time.Millisecond))
	age, err := l.Programs().SweepOverdueTicks()
	if err == nil && age >= withoutSweepsTicks {
		err = fmt.Errorf("the last sweep was %d ticks ago: it will seem recent after the clock wraps around", age)
	}
	return errors.Join(err, checkCountsAfterExpiry(l))
}

// clientExchanges returns the packets of a connection to each service. Packets of the endpoint
// begin with its link.
func clientExchanges(client netip.Addr) [][]string {
	return [][]string{
		{
			fmt.Sprintf("client tcp %s:4000 > 10.0.0.1:80 S seq 1000", client),
			fmt.Sprintf("server tcp 192.168.1.10:8080 > %s:4000 SA seq 5000 ack 1001", client),
			fmt.Sprintf("client tcp %s:4000 > 10.0.0.1:80 A seq 1001 ack 5001", client),
			fmt.Sprintf("client tcp %s:4000 > 10.0.0.1:80 R seq 1001 ack 5001", client),
		},
		{
			fmt.Sprintf("client udp %s:4000 > 10.0.0.1:53 len 30", client),
			fmt.Sprintf("server udp 192.168.1.10:53 > %s:4000 len 60", client),
		},
		{
			fmt.Sprintf("client icmp %s > 10.0.0.1 echo id 7", client),
			fmt.Sprintf("server icmp 192.168.1.10 > %s echo-reply id 7", client),
		},
	}
}

// sendAll sends packets, and returns an error unless each of them leaves towards the other side.
func sendAll(l *lab.Lab, packets []string) error {
	for _, text := range packets {
		name, rest := splitVerb(text)
		link, err := l.Link(name)
		if err != nil {
			return err
		}
		p, err := pkt.Parse(rest)
		if err != nil {
			return err
		}
		out, err := l.Datapath.TestRun().Run(testrun.Input{Frame: l.Arriving(link, p).Build(), Ifindex: link.Index})
		if err != nil {
			return err
		}
		to := l.LinkOf(out.Frame)
		if out.Verdict != testrun.Redirect || to == nil || to.Name == name {
			reason, _ := l.Counted()
			pressure, _ := l.DumpPressure()
			return fmt.Errorf("%s: verdict %d, reason %q, %v", text, out.Verdict, reason, pressure)
		}
	}
	return nil
}

// checkCountsAfterExpiry lets all flows expire, and opens flows of other clients until the counters
// agree with the table.
func checkCountsAfterExpiry(l *lab.Lab) error {
	const most = 400 // two passes through the table
	if err := l.Advance(time.Hour); err != nil {
		return err
	}
	var pressure []string
	for i := 1; i <= most; i++ {
		client := netip.AddrFrom4([4]byte{2, 2, byte(i >> 8), byte(i)})
		if err := sendAll(l, clientExchanges(client)[1+i%2]); err != nil {
			return err
		}
		var err error
		if pressure, err = l.DumpPressure(); err != nil {
			return err
		}
		if pressure[0] == fmt.Sprintf("entries=%d half-open: tcp=0 others=%d", 2*i, i) {
			left, err := l.Connections()
			if err == nil && len(left) != 2*i {
				err = fmt.Errorf("%d entries are in the table, and %d are counted", len(left), 2*i)
			}
			return err
		}
	}
	return fmt.Errorf("%d clients after all flows have expired, %q are counted", most, pressure)
}
