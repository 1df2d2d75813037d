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

// TestAway checks that without sweeps a table of 4,096 entries serves all new clients of TCP, UDP
// and ICMP, for ten times as many connections. Then the counters must agree with the table.
func TestAway(t *testing.T) {
	t.Parallel()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- away(t)
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

const (
	awayConnections = 2048
	awayTurnovers   = 10
	awayTicks       = 1 << 31
	awayEach        = 30 // new flows per second and protocol, limited by the shares of half-open ones
)

func away(t *testing.T) (err error) {
	l, err := lab.New(lab.Config{Connections: awayConnections, HalfOpen: 25})
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
	if err := l.Programs().BreakPromise(awayTicks); err != nil {
		return err
	}
	flows, began := 0, time.Now()
	for flows < awayTurnovers*awayConnections {
		for range awayEach {
			client := netip.AddrFrom4([4]byte{1, 1 + byte(flows>>16), byte(flows >> 8), byte(flows)})
			for _, exchange := range awayExchanges(client) {
				if err := serve(l, exchange); err != nil {
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
	age, err := l.Programs().PromiseAge()
	if err == nil && age >= awayTicks {
		err = fmt.Errorf("the promise is %d ticks old: it will seem to be kept when the clock comes round", age)
	}
	return errors.Join(err, awayCounts(l))
}

// awayExchanges returns the packets of a client with each service, one connection each. Packets of
// the endpoint name its link.
func awayExchanges(client netip.Addr) [][]string {
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

// serve sends packets, each of which must leave towards the other side.
func serve(l *lab.Lab, packets []string) error {
	for _, text := range packets {
		name, rest := cutVerb(text)
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

// awayCounts lets all flows expire, sends packets of further clients through the table, and waits
// until the counters equal what these have opened.
func awayCounts(l *lab.Lab) error {
	const most = 400 // two passes through the table
	if err := l.Advance(time.Hour); err != nil {
		return err
	}
	var pressure []string
	for i := 1; i <= most; i++ {
		client := netip.AddrFrom4([4]byte{2, 2, byte(i >> 8), byte(i)})
		if err := serve(l, awayExchanges(client)[1+i%2]); err != nil {
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
