package reconcile

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// fakeAttacher records its last call.
type fakeAttacher struct {
	last   *bpf.Attached
	failed bpf.NotAttached
}

func (f *fakeAttacher) SetAttached(all *bpf.Attached) (bpf.NotAttached, error) {
	f.last = all
	return f.failed, nil
}

// TestPolicers checks that all policers together make one row for each object that they are
// attached to, that services are found by name and by key, that a policer may be attached to an
// object that does not exist yet, and that a failing policer does not affect others.
func TestPolicers(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	s, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	policer := func(name string, to policy.AttachTo, target string, d policy.Direction) policy.Policer {
		rate := policy.Rate{PerSecond: 1e6}
		return policy.Policer{Name: name, Committed: rate, Peak: rate, Attachment: policy.Attachment{To: to, Name: target, Direction: d}}.Normal()
	}
	rule, err := policy.ParseRule("sourceIP:10.0.0.0/8,preference:5 allow")
	if err != nil {
		t.Fatal(err)
	}
	var keys []lb.Key
	_, _, err = s.Commit("test", func(tx *store.Tx) error {
		for _, text := range []string{"10.0.0.1:80/tcp name=web endpoints=192.168.1.1:80", "10.0.0.1:443/tcp name=web endpoints=192.168.1.1:443"} {
			service, err := lb.ParseService(text)
			if err != nil {
				return err
			}
			keys = append(keys, service.Key)
			if err := s.Services.Put(tx, service); err != nil {
				return err
			}
		}
		for _, p := range []policy.Policer{
			policer("a", policy.AttachService, "10.0.0.1:443/tcp", policy.DirectionIn), policer("b", policy.AttachService, "web", policy.DirectionBoth),
			policer("c", policy.AttachPort, "eth1", policy.DirectionIn), policer("d", policy.AttachPort, "eth9", policy.DirectionIn), policer("e", policy.AttachSource, "10.1.2.3/8", policy.DirectionOut),
			policer("f", policy.AttachRule, "preference:5,sourceIP:10.0.0.0/8", policy.DirectionBoth), policer("g", policy.AttachRule, "preference:6", policy.DirectionBoth),
		} {
			if err := s.Policers.Put(tx, p); err != nil {
				return err
			}
		}
		return s.Rules.Put(tx, rule)
	})
	if err != nil {
		t.Fatal(err)
	}
	table := &fakeAttacher{failed: bpf.NotAttached{Policers: map[string]error{"b": errors.New("no memory")}}}
	links := func() []netdev.Link { return []netdev.Link{{Index: 7, Name: "eth1"}} }
	p := NewPolicers(s, NewAttached(s, table, links), Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: log})
	for _, o := range p.Apply(t.Context(), []string{"a", "b", "d"}) {
		if (o.Err != nil) != (o.Key == "b") || o.Version != s.Snapshot().Revision() {
			t.Errorf(`got %+v, want o.Err != nil == o.Key == "b", o.Version == s.Snapshot().Revision()`, o)
		}
	}
	a, b, c, e := bpf.NameKey("a"), bpf.NameKey("b"), bpf.NameKey("c"), bpf.NameKey("e")
	row := func(towards, back uint64) bpf.TcAttachments {
		return bpf.TcAttachments{Policers: [2]uint64{towards, back}}
	}
	if got := table.last.Services; len(got) != 2 || got[compile.Key(keys[0])] != row(b, b) || got[compile.Key(keys[1])] != row(a, b) {
		t.Errorf("services have %v", got)
	}
	if got := table.last.Ports; len(got) != 1 || got[7] != row(c, 0) {
		t.Errorf("interfaces have %v", got)
	}
	if got := table.last.Sources; len(got) != 1 || got[netip.MustParsePrefix("10.0.0.0/8")] != row(0, e) {
		t.Errorf("clients have %v", got)
	}
	f := bpf.NameKey("f")
	if got := table.last.Rules; len(got) != 1 || got[compile.RuleIdentity(&rule)] != row(f, f) {
		t.Errorf("rules have %v", got)
	}
	for name, want := range map[string]int{"a": 1, "b": 2, "c": 1, "d": 0, "e": 1, "f": 1, "g": 0} {
		if n := p.attached.PolicerPlaces(name); n != want {
			t.Errorf("%s is in %d places, want %d", name, n, want)
		}
	}
}
