package datapath_test

import (
	"fmt"
	"testing"
	"time"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

func sendLine(l *lab.Lab, line string) (lab.Result, error) {
	p, err := pkt.Parse(line)
	if err != nil {
		return lab.Result{}, err
	}
	return l.Send(l.Client, l.Arriving(l.Client, p).Build())
}

// sendFragmented sends a datagram in two fragments, and checks that both are forwarded.
func sendFragmented(l *lab.Lab, client string, id int) error {
	for _, line := range []string{
		fmt.Sprintf("udp %s:4000 > 10.0.0.1:53 ipid %d mf len 1472 udplen 3000", client, id),
		fmt.Sprintf("ip %s > 10.0.0.1 proto 17 ipid %d frag 1480 len 1520", client, id),
	} {
		if res, err := sendLine(l, line); err != nil || res.Verdict != "out" {
			return fmt.Errorf("%s: %s %s %w", line, res.Verdict, res.Reason, err)
		}
	}
	return nil
}

// sendIncomplete sends n first fragments of datagrams that are never completed.
func sendIncomplete(l *lab.Lab, n int, client func(i int) string) (refused int, err error) {
	return sendFirst(l, n, func(i int) string {
		return fmt.Sprintf("udp %s:4000 > 10.0.0.1:53 ipid %d mf len 1472 udplen 3000", client(i), i)
	})
}

// sendFirst sends n first fragments, and counts those of sources that have begun too many
// datagrams.
func sendFirst(l *lab.Lab, n int, fragment func(i int) string) (refused int, err error) {
	for i := range n {
		res, err := sendLine(l, fragment(i))
		switch {
		case err != nil:
			return refused, err
		case res.Reason == "fragments-full":
			refused++
		case res.Verdict != "out":
			return refused, fmt.Errorf("datagram %d: %s %s", i, res.Verdict, res.Reason)
		}
	}
	return refused, nil
}

// TestFragmentsOldest sends more incomplete datagrams of many sources than the table holds.
//
// V122 8,192 datagrams in transit: the next one replaces the oldest
func TestFragmentsOldest(t *testing.T) {
	t.Parallel()
	inLabWith(t, lab.Config{Connections: 16384}, "10.0.0.1:53/udp endpoints=192.168.1.10:5353", func(l *lab.Lab) error {
		refused, err := sendIncomplete(l, 12000, func(i int) string { return fmt.Sprintf("1.2.%d.%d", i/100, i%100) })
		if err != nil || refused > 0 {
			return fmt.Errorf("%d refused: %w", refused, err)
		}
		if err := sendFragmented(l, "1.1.1.1", 7); err != nil {
			return err
		}
		res, err := sendLine(l, "ip 1.2.0.0 > 10.0.0.1 proto 17 ipid 0 frag 1480 len 1520")
		if err == nil && res.Reason != "fragment" {
			err = fmt.Errorf("the oldest datagram's record is still there: %s", res.Verdict)
		}
		return err
	})
}

// TestFragmentsOfOneSource begins more datagrams of one source than its limit: only that source is
// refused, for datagrams begun earlier and later.
func TestFragmentsOfOneSource(t *testing.T) {
	t.Parallel()
	const flood = 6000
	inLab(t, "10.0.0.1:53/udp endpoints=192.168.1.10:5353", func(l *lab.Lab) error {
		if _, err := sendIncomplete(l, 1, func(int) string { return "1.1.1.1" }); err != nil {
			return err
		}
		start := time.Now()
		refused, err := sendIncomplete(l, flood, func(int) string { return "1.1.1.9" })
		if err != nil {
			return err
		}
		if err := wantBudget(flood-refused, time.Since(start)); err != nil {
			return err
		}
		res, err := sendLine(l, "ip 1.1.1.1 > 10.0.0.1 proto 17 ipid 0 frag 1480 len 1520")
		if err != nil || res.Verdict != "out" {
			return fmt.Errorf("a datagram begun before: %s %s %w", res.Verdict, res.Reason, err)
		}
		return sendFragmented(l, "1.1.1.2", 7)
	})
}

// TestFragmentsOfOneNetwork checks that the addresses of a 64-bit network are one source, and those
// of the next network another.
func TestFragmentsOfOneNetwork(t *testing.T) {
	t.Parallel()
	const flood = 6000
	const service = "[2001:db8::1]:53/udp endpoints=[2001:db8:2::10]:5353"
	first := func(client string, id int) string {
		return fmt.Sprintf("udp [%s]:4000 > [2001:db8::1]:53 ext frag:0+:%d len 1440 udplen 3000",
			client, id)
	}
	inLabWith(t, lab.Config{Connections: 16384}, service, func(l *lab.Lab) error {
		start := time.Now()
		refused, err := sendFirst(l, flood, func(i int) string {
			return first(fmt.Sprintf("2001:db8:100:7:%x::%x", 1+i%2000, 1+i/2000), i)
		})
		if err != nil {
			return err
		}
		if err := wantBudget(flood-refused, time.Since(start)); err != nil {
			return err
		}
		refused, err = sendFirst(l, 10, func(i int) string { return first("2001:db8:100:8::1", i) })
		if err == nil && refused > 0 {
			err = fmt.Errorf("%d of 10 datagrams of the next network are refused", refused)
		}
		return err
	})
}

// wantBudget checks how many datagrams a source could begin within a time: FRAGMENTED_PER_SOURCE of
// bpf/abi.h at once, and as many each second.
func wantBudget(begun int, within time.Duration) error {
	const budget = 1024
	if most := budget * (int(within/time.Second) + 2); begun < budget || begun > most {
		return fmt.Errorf("%d datagrams of one source in %v, want %d to %d", begun, within, budget, most)
	}
	return nil
}

// TestFragmentsComplete checks that complete datagrams do not count towards their source's limit.
func TestFragmentsComplete(t *testing.T) {
	t.Parallel()
	inLab(t, "10.0.0.1:53/udp endpoints=192.168.1.10:5353", func(l *lab.Lab) error {
		for id := range 4000 {
			if err := sendFragmented(l, "1.1.1.1", id); err != nil {
				return err
			}
		}
		return nil
	})
}
