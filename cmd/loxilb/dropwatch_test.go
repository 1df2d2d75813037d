package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/report"
)

// TestOwnDrops checks that each reason that the log warns about exists, and has a hint what to do.
func TestOwnDrops(t *testing.T) {
	t.Parallel()
	for _, name := range actionableDrops() {
		if r, known := report.DropReasonOf(name); !known || r.Remedy == "" {
			t.Errorf("%s: got %+v, want known, r.Remedy not empty", name, r)
		}
	}
}

// dropFixture is a dropWatch of counters that the test sets, with its log.
type dropFixture struct {
	*dropWatch
	out      bytes.Buffer
	dropped  map[string]uint64
	services []tables.Refusal
	endpoint string // without a route
}

func newDropFixture() *dropFixture {
	b := &dropFixture{dropped: map[string]uint64{}}
	b.dropWatch = &dropWatch{
		drops: func() (map[string]uint64, error) {
			now := map[string]uint64{}
			for reason, n := range b.dropped {
				now[reason] = n
			}
			return now, nil
		},
		refusals: func(yield func(tables.Refusal)) error {
			for _, r := range b.services {
				yield(r)
			}
			return nil
		},
		problems: func() (list []netdev.KnownProblem) {
			if b.endpoint != "" {
				list = append(list, netdev.KnownProblem{Problem: netdev.Problem{Kind: netdev.NeighbourKind, Key: b.endpoint}})
			}
			return list
		},
		log: slog.New(slog.NewTextHandler(&b.out, nil)),
	}
	return b
}

// expect checks once for drops, and compares the log lines without their hints.
func (b *dropFixture) expect(t *testing.T, want ...string) {
	t.Helper()
	b.check()
	var have []string
	for line := range strings.Lines(b.out.String()) {
		_, line, _ = strings.Cut(line, `msg="packets dropped" `)
		line, _, _ = strings.Cut(line, " hint=")
		have = append(have, line)
	}
	b.out.Reset()
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("the lines are %q, want %q", have, want)
	}
}

// TestDropsNamed checks that dropped packets are logged with the services that refused them, or the
// endpoints without a route. No packet counts twice although counters are read at different times.
func TestDropsNamed(t *testing.T) {
	t.Parallel()
	b := newDropFixture()
	b.dropped["no-endpoint"] = 7
	b.services = []tables.Refusal{{Service: "20.20.20.1:80/tcp", Name: "web", Reason: "no-endpoint", Packets: 7}, {Service: "20.20.20.1:81/tcp", Reason: "no-endpoint"}}
	b.begin()
	b.expect(t)
	b.dropped["no-endpoint"], b.services[0].Packets = 9, 10 // one packet came between the two reads
	b.expect(t, "service=20.20.20.1:80/tcp name=web reason=no-endpoint packets=3")
	b.dropped["no-endpoint"] = 10
	b.expect(t)
	b.dropped["no-endpoint"], b.services[1].Packets = 11, 1
	b.expect(t, "service=20.20.20.1:81/tcp reason=no-endpoint packets=1")
	b.dropped["tuple-in-use"] = 2
	b.expect(t)
	b.expect(t, "reason=tuple-in-use packets=2")
	b.dropped["no-route"] = 3
	b.expect(t)
	b.endpoint = "31.31.31.1"
	b.expect(t, "endpoint=31.31.31.1 reason=no-route packets=3")
	b.dropped["forwarding-off"], b.dropped["malformed"] = 4, 4
	b.expect(t, "interface=lo reason=forwarding-off packets=4")
}

// TestManyServicesDrop checks that a few services have log lines of their own, and keep them; the
// others are summed up.
func TestManyServicesDrop(t *testing.T) {
	t.Parallel()
	b := newDropFixture()
	b.begin()
	for i := range uint64(100) {
		b.services = append(b.services, tables.Refusal{Service: fmt.Sprintf("20.20.20.1:%03d/tcp", i), Reason: "no-endpoint"})
	}
	for round := range uint64(3) {
		for i := range b.services {
			b.services[i].Packets += 1 + (uint64(i)+50*round)%100
			b.dropped["no-endpoint"] += 1 + (uint64(i)+50*round)%100
		}
		b.check()
	}
	if n := strings.Count(b.out.String(), "\n"); n != 3*(maxNamed+1) || len(b.named) != maxNamed {
		t.Errorf("%d lines, %d services:\n%s", n, len(b.named), b.out.String())
	}
	if !strings.Contains(b.out.String(), `services="95 more" reason=no-endpoint`) {
		t.Errorf("got %v, want `services=\"95 more\" reason=no-endpoint` in b.out", b.out.String())
	}
}
