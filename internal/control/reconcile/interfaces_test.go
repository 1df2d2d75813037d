package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

// fakeHooks records the calls of the data path in order. Those in broken fail.
type fakeHooks struct {
	events []string
	broken map[string]bool
}

func (h *fakeHooks) record(format string, args ...any) error {
	event := fmt.Sprintf(format, args...)
	if h.broken[event] {
		event += " fails"
	}
	h.events = append(h.events, event)
	if strings.HasSuffix(event, " fails") {
		return errors.New("broken")
	}
	return nil
}

func (h *fakeHooks) SetLink(i datapath.Interface) error {
	return h.record("set %d peer=%v layer3=%v", i.Index, i.Peer, i.Layer3)
}
func (h *fakeHooks) ForgetLink(index int) error        { return h.record("forget %d", index) }
func (h *fakeHooks) Attach(i datapath.Interface) error { return h.record("attach %d", i.Index) }
func (h *fakeHooks) SetEgress(index int) error {
	if h.broken[fmt.Sprintf("egress %d", index)] {
		return errors.New("broken")
	}
	return nil
}
func (h *fakeHooks) MayQueue(index int) bool { return !h.broken[fmt.Sprintf("queue %d", index)] }
func (h *fakeHooks) Detach(index int) error  { return h.record("detach %d", index) }
func (h *fakeHooks) DetachOrphans(keep func(index int) bool) error {
	return h.record("detach all but %v", kept(keep))
}
func (h *fakeHooks) ForgetOtherLinks(keep func(index int) bool) error {
	return h.record("forget all but %v", kept(keep))
}

// kept returns the indices for which keep returns true.
func kept(keep func(index int) bool) []int {
	list := []int{}
	for i := range 10 {
		if keep(i) {
			list = append(list, i)
		}
	}
	return list
}

// link returns an interface that is up; its name decides whether it is a veth, a tunnel or plain.
func link(index int, name string) netdev.Link {
	l := netdev.Link{Index: index, Name: name, Kind: "", Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, Type: 1}
	switch {
	case strings.HasPrefix(name, "veth"):
		l.Kind, l.PeerElsewhere = "veth", true
	case strings.HasPrefix(name, "tun"):
		l.Kind, l.MAC, l.Type = "tun", nil, 65534
	}
	return l
}

// later returns another link with the same index.
func later(l netdev.Link) netdev.Link {
	l.Generation++
	return l
}

// TestOrphansRetryInterval checks that orphans are retried once a second, however often interfaces
// change.
func TestOrphansRetryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHooks{broken: map[string]bool{"detach all but []": true}}
		i := NewInterfaces(InterfacesConfig{Observers: quiet(), Hooks: h, Links: func() []netdev.Link { return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { i.Run(ctx); close(done) }()
		for range 20 {
			i.MarkAll()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		if n := len(h.events); n > 2*(20+12) {
			t.Errorf("tried %d times in ten seconds", n)
		}
		time.Sleep(time.Minute)
	})
}

// TestEgressInterval checks that the program of another owner at an interface is noticed within
// half a minute, although other interfaces change all the time.
func TestEgressInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHooks{broken: map[string]bool{}}
		i := NewInterfaces(InterfacesConfig{Observers: quiet(), Hooks: h, Links: func() []netdev.Link { return []netdev.Link{link(3, "veth1"), link(4, "veth2")} }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { i.Run(ctx); close(done) }()
		synctest.Wait()
		if !i.current[3].Queues {
			t.Error("packets are not queued at a veth without programs of others")
		}
		h.broken["queue 3"] = true
		for range 4 {
			time.Sleep(10 * time.Second)
			i.Mark(4)
			synctest.Wait()
		}
		if i.current[3].Queues {
			t.Error("packets are still queued at a veth with another owner's program")
		}
		cancel()
		<-done
		i.recheckTimer.Stop()
	})
}

func TestInterfaces(t *testing.T) {
	t.Parallel()
	h := &fakeHooks{broken: map[string]bool{}}
	var links []netdev.Link
	o := quiet()
	i := NewInterfaces(InterfacesConfig{
		Observers: o, Hooks: h, Links: func() []netdev.Link { return links }, Blacklist: regexp.MustCompile("^mgmt"),
	})
	eth, veth, tun, mgmt := link(2, "eth0"), link(3, "veth1"), link(4, "tun0"), link(5, "mgmt0")
	another := eth
	another.Generation++
	for _, step := range []struct {
		what   string
		broken []string
		links  []netdev.Link
		want   []string // in any order
		failed string   // keys of failed statuses
	}{
		{
			"start", []string{"detach all but [2 3]"}, []netdev.Link{eth, veth, mgmt},
			[]string{
				"set 2 peer=false layer3=false", "set 3 peer=true layer3=false", "set 5 peer=false layer3=false",
				"attach 2", "attach 3", "detach all but [2 3] fails", "forget all but [2 3 5]",
			}, "interfaces of an earlier start",
		},
		{"orphans are still there", nil, []netdev.Link{eth, veth, mgmt}, []string{"detach all but [2 3]", "forget all but [2 3 5]"}, ""},
		{"no change", nil, []netdev.Link{eth, veth, mgmt}, nil, ""},
		{"another interface has the index", nil, []netdev.Link{another, veth, mgmt}, []string{"detach 2", "set 2 peer=false layer3=false", "attach 2"}, ""},
		{"a tunnel is added", nil, []netdev.Link{another, veth, tun, mgmt}, []string{"set 4 peer=false layer3=true", "attach 4"}, ""},
		{"the veth is removed", nil, []netdev.Link{another, tun, mgmt}, []string{"detach 3", "forget 3"}, ""},
		{
			"a veth cannot be attached, eth1 can", []string{"attach 3"},
			[]netdev.Link{another, veth, tun, link(6, "eth1"), mgmt},
			[]string{"set 3 peer=true layer3=false", "attach 3 fails", "set 6 peer=false layer3=false", "attach 6"}, "veth1",
		},
		{"veth1 is retried", nil, []netdev.Link{another, veth, tun, link(6, "eth1"), mgmt}, []string{"attach 3"}, ""},
		{"the egress program of eth1 fails", []string{"egress 6"}, []netdev.Link{another, veth, tun, link(6, "eth1"), mgmt}, nil, "eth1"},
		{
			"eth1 is renamed to a name on the blacklist", []string{"detach 6"}, []netdev.Link{another, veth, tun, link(6, "mgmt1"), mgmt},
			[]string{"set 6 peer=false layer3=false", "detach 6 fails"}, "mgmt1",
		},
		{"mgmt1 is retried", nil, []netdev.Link{another, veth, tun, link(6, "mgmt1"), mgmt}, []string{"detach 6"}, ""},
		{"the tunnel is removed, and cannot be forgotten", []string{"forget 4"}, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt}, []string{"detach 4", "forget 4 fails"}, "tun0 (4)"},
		{
			"another tunnel has its name", []string{"forget 4"}, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt, link(7, "tun0")},
			[]string{"set 7 peer=false layer3=true", "attach 7", "detach 4", "forget 4 fails"}, "tun0 (4)",
		},
		{"the former tunnel is retried", nil, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt, link(7, "tun0")}, []string{"detach 4", "forget 4"}, ""},
		{
			"SetLink fails for eth8", []string{"set 8 peer=false layer3=false"}, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt, link(7, "tun0"), link(8, "eth8")},
			[]string{"set 8 peer=false layer3=false fails"}, "eth8",
		},
		{
			"eth8 is retried", nil, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt, link(7, "tun0"), link(8, "eth8")},
			[]string{"set 8 peer=false layer3=false", "attach 8"}, "",
		},
		{
			"another interface, with another name, has the index of eth8", nil, []netdev.Link{another, veth, link(6, "mgmt1"), mgmt, link(7, "tun0"), later(link(8, "eth9"))},
			[]string{"detach 8", "set 8 peer=false layer3=false", "attach 8"}, "",
		},
	} {
		h.events, links = nil, step.links
		clear(h.broken)
		for _, event := range step.broken {
			h.broken[event] = true
		}
		i.report(t.Context(), i.Apply(t.Context(), []int{allInterfaces}))
		slices.Sort(h.events)
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, h.events); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.what, diff)
		}
		var failed []string
		for _, s := range o.Statuses.List("", true) {
			failed = append(failed, s.Key)
		}
		if got := strings.Join(failed, " "); got != step.failed {
			t.Errorf("%s: %q failed, want %q", step.what, got, step.failed)
		}
	}
	var names []string
	for _, s := range o.Statuses.List(InterfaceKind, false) {
		names = append(names, s.Key+" "+string(s.State()))
	}
	if got := strings.Join(names, ", "); got != "eth0 applied, eth9 applied, tun0 applied, veth1 applied" {
		t.Errorf(`got %v, want "eth0 applied, eth9 applied, tun0 applied, veth1 applied"`, got)
	}
}
