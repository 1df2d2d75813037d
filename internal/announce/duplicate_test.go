package announce

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/kernel/netdev"
	"loxilb/test/await"
)

func TestProbeFrames(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for vip, want := range map[string]string{
		"10.1.0.50": "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000 000000000000 0a010032",
		"2001:db8:1::50": "3333ff000050 020000000001 86dd 60000000 0018 3a ff" +
			"00000000000000000000000000000000 ff0200000000000000000001ff000050" +
			"87 00 4c4e 00000000 20010db8000100000000000000000050",
	} {
		if got := hex.EncodeToString(probeFrame(netip.MustParseAddr(vip), mac)); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf(`%s: got %s, want want`, vip, got)
		}
	}
}

// oneLink is a network of one interface.
type oneLink struct{ LinkNetwork }

func (oneLink) OnLink(netip.Addr) []netdev.Link { return nil }

func (oneLink) Links() []netdev.Link { return nil }

// TestDuplicateStates checks what proves a duplicate, and its end: the answer to a probe, and three
// probes in a row that nobody answers.
func TestDuplicateStates(t *testing.T) {
	t.Parallel()
	vip := netip.MustParseAddr("10.1.0.50")
	mine, changes := true, 0
	d := &Duplicates{
		network: oneLink{}, owns: func(netip.Addr) bool { return mine }, changed: func() { changes++ },
		log: slog.New(slog.DiscardHandler), found: map[vipLink]Duplicate{},
	}
	states := map[vipLink]*probing{}
	at, now := vipLink{vip, 2}, time.Now()
	seen := claimant{at, [6]byte{2, 0, 0, 0, 0, 9}}
	probe := func(after time.Duration) { now = now.Add(after); d.probe(t.Context(), &socket{fd: -1}, states, now) }
	check := func(what string, duplicates, changed int) {
		t.Helper()
		if got := len(d.Found()); got != duplicates || changes != changed {
			t.Fatalf("%s: %d duplicates, %d changes; want %d, %d", what, got, changes, duplicates, changed)
		}
	}
	d.handle(states, seen, now)
	check("a host announces the VIP", 0, 0)
	probe(formerOwnerTime)
	d.handle(states, seen, now)
	check("it answers the probe", 1, 1)
	for range maxUnanswered {
		probe(recheckInterval)
		check("it is silent for a while", 1, 1)
	}
	d.handle(states, seen, now)
	probe(recheckInterval)
	probe(recheckInterval)
	check("it has answered again", 1, 1)
	probe(recheckInterval)
	check("it is gone", 0, 2)
	probe(2 * formerOwnerTime)
	if len(states) != 0 {
		t.Errorf("%d states are left", len(states))
	}
	d.handle(states, seen, now)
	probe(formerOwnerTime)
	d.handle(states, seen, now)
	mine = false
	probe(recheckInterval)
	check("the node gave up the VIP", 0, 4)
}

// manyVIPsNetwork is a network without links, in which nothing can be opened.
type manyVIPsNetwork struct{ oneLink }

func (manyVIPsNetwork) Do(func() error) error { return errors.New("no network") }

// TestDuplicatesCost checks that the work grows with the number of VIPs, not with its square: when
// many VIPs are new, and when probes of many are due.
func TestDuplicatesCost(t *testing.T) {
	t.Parallel()
	const vips = 4096
	var calls atomic.Int64
	d := &Duplicates{
		network: manyVIPsNetwork{}, owns: func(netip.Addr) bool { calls.Add(1); return true }, owned: func() []netip.Addr { return nil },
		log: slog.New(slog.DiscardHandler), found: map[vipLink]Duplicate{},
		suspects: make(chan vipLink, vips), claims: make(chan claimant),
	}
	states := map[vipLink]*probing{}
	vip := netip.MustParseAddr("10.1.0.1")
	now := time.Now()
	for range vips {
		at := vipLink{vip, 2}
		d.suspects <- at
		scheduleProbe(states, at, now)
		vip = vip.Next()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	await.NoError(t, 10*time.Second, func() error {
		if n := len(d.suspects); n > 0 {
			return fmt.Errorf("%d suspects wait", n)
		}
		return nil
	})
	cancel()
	<-done
	d.queue = nil
	if n := calls.Swap(0); n > 64*vips {
		t.Errorf("got %d checks of VIPs for %d new ones, want fewer", n, vips)
	}
	for range vips / burst {
		d.probe(t.Context(), &socket{fd: -1}, states, now)
	}
	for at, p := range states {
		if p.sent.IsZero() {
			t.Fatalf("%v was not probed", at)
		}
	}
	if n := calls.Load(); n > 2*vips {
		t.Errorf("got %d checks of VIPs for %d probes, want 2 for each at most", n, vips)
	}
}
