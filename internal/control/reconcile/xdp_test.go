package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/config"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

func (h *fakeHooks) SetXDP(i datapath.XDPInterface) error {
	return h.record("set %s attach=%v target=%v", i.Name, i.Attach, i.Target)
}
func (h *fakeHooks) ForgetXDP(index int) error { return h.record("forget %d", index) }
func (h *fakeHooks) DetachXDPOrphans() error   { return h.record("clean") }

const (
	runs     = netdev.XDPBasic | netdev.XDPRedirect
	forwards = runs | netdev.XDPTransmit
)

func card(index int, name, bus string) netdev.Link {
	l := link(index, name)
	l.Bus = bus
	return l
}

// TestXDPChoice checks where the program is attached, and where frames can be redirected to.
func TestXDPChoice(t *testing.T) {
	t.Parallel()
	links := []netdev.Link{
		card(2, "eth0", "pci"), card(3, "eth1", "pci"), card(4, "eth2", "virtio"), link(5, "veth0"), link(6, "veth1"),
		link(7, "tun0"), card(8, "mgmt0", "pci"),
	}
	known := map[int]netdev.XDPFeatures{2: forwards, 3: runs, 4: forwards, 5: forwards, 6: runs, 8: forwards}
	for name, c := range map[string]struct {
		choice   config.XDP
		features map[int]netdev.XDPFeatures
		attached string
		targets  string
	}{
		"auto":                      {config.XDPAuto, known, "eth0", "eth0 eth2 mgmt0 veth0"},
		"auto, unknown features":    {config.XDPAuto, nil, "", ""},
		"auto, no card of it":       {config.XDPAuto, map[int]netdev.XDPFeatures{3: runs, 4: forwards, 5: forwards}, "", ""},
		"native":                    {config.XDPNative, known, "eth0 eth1 eth2 veth0 veth1", "eth0 eth2 mgmt0 veth0"},
		"native, unknown features":  {config.XDPNative, nil, "eth0 eth1 eth2 veth0 veth1", "eth0 eth1 eth2"},
		"generic":                   {config.XDPGeneric, known, "eth0 eth1 eth2 veth0 veth1", "eth0 eth1 eth2 mgmt0 veth0 veth1"},
		"generic, unknown features": {config.XDPGeneric, nil, "eth0 eth1 eth2 veth0 veth1", "eth0 eth1 eth2 mgmt0 veth0 veth1"},
		"off":                       {config.XDPOff, known, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &fakeHooks{}
			x := NewXDP(h, XDPConfig{
				Choice: c.choice, Blacklist: regexp.MustCompile("^mgmt"),
				Features: func() (map[int]netdev.XDPFeatures, error) { return c.features, nil },
			}, slog.New(slog.DiscardHandler))
			_ = x.Sync(links)
			var attached, targets []string
			for _, e := range h.events {
				var what string
				var attach, target bool
				if n, _ := fmt.Sscanf(e, "set %s attach=%t target=%t", &what, &attach, &target); n != 3 {
					continue
				}
				if attach {
					attached = append(attached, what)
				}
				if target {
					targets = append(targets, what)
				}
			}
			slices.Sort(attached)
			slices.Sort(targets)
			got := []string{strings.Join(attached, " "), strings.Join(targets, " ")}
			if diff := cmp.Diff([]string{c.attached, c.targets}, got); diff != "" {
				t.Errorf("attached, targets: -want +got\n%s", diff)
			}
		})
	}
}

// TestXDPFollows checks that the program follows the interfaces and their drivers' features.
// Without support, an interface works without XDP, is retried, and is named in the error.
func TestXDPFollows(t *testing.T) {
	t.Parallel()
	h := &fakeHooks{broken: map[string]bool{}}
	var log bytes.Buffer
	features := map[int]netdev.XDPFeatures{2: forwards, 3: runs}
	var failed error
	x := NewXDP(h, XDPConfig{
		Choice: config.XDPNative, Features: func() (map[int]netdev.XDPFeatures, error) { return features, failed },
	}, slog.New(slog.NewTextHandler(&log, nil)))
	eth, veth := link(2, "eth0"), link(3, "veth1")
	another := eth
	another.Generation++
	const refuses = "set veth1 attach=true target=false"
	for _, step := range []struct {
		what   string
		before func()
		links  []netdev.Link
		want   []string // in any order
	}{
		{"a veth refuses XDP", func() { h.broken[refuses] = true }, []netdev.Link{eth, veth}, []string{
			"set eth0 attach=true target=true", refuses + " fails", "set veth1 attach=false target=false", "clean",
		}},
		{"it is retried", func() {}, []netdev.Link{eth, veth}, []string{refuses + " fails"}},
		{"it accepts XDP", func() { clear(h.broken) }, []netdev.Link{eth, veth}, []string{refuses}},
		{"no change", func() {}, []netdev.Link{eth, veth}, nil},
		{"it accepts redirected frames", func() { features[3] = forwards }, []netdev.Link{eth, veth}, []string{"set veth1 attach=true target=true"}},
		{"it no longer accepts redirected frames", func() { features[3] = runs }, []netdev.Link{eth, veth}, []string{refuses}},
		{"features of drivers are unknown", func() { failed = errors.New("broken") }, []netdev.Link{eth}, nil},
		{"it is removed", func() { failed = nil }, []netdev.Link{eth}, []string{"forget 3"}},
		{"another interface has the index", func() {}, []netdev.Link{another}, []string{"forget 2", "set eth0 attach=true target=true"}},
		{"no change of that interface", func() {}, []netdev.Link{another}, nil},
	} {
		h.events = nil
		step.before()
		err := x.Sync(step.links)
		if refused := slices.Contains(step.want, refuses+" fails"); refused != (err != nil) && failed == nil {
			t.Errorf("%s: the error is %v", step.what, err)
		}
		slices.Sort(h.events)
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, h.events); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.what, diff)
		}
	}
	if strings.Contains(log.String(), "XDP not attached") {
		t.Errorf("the refusal is logged, although it is an error of Sync:\n%s", log.String())
	}
}

// TestXDPTagged checks that generic XDP is not attached to interfaces with VLANs, and reports that.
func TestXDPTagged(t *testing.T) {
	t.Parallel()
	h := &fakeHooks{}
	x := NewXDP(h, XDPConfig{
		Choice: config.XDPGeneric, Features: func() (map[int]netdev.XDPFeatures, error) { return nil, nil },
	}, slog.New(slog.DiscardHandler))
	vlan := link(4, "eth1.7")
	vlan.Kind, vlan.PeerIndex = "vlan", 3
	for range 3 {
		err := x.Sync([]netdev.Link{link(2, "eth0"), link(3, "eth1"), vlan})
		if err == nil || err.Error() != "XDP is not attached to eth1: "+errTagged.Error()+"; its packets go through tc only" {
			t.Errorf("got %v, want an error that names eth1 and its VLAN tags", err)
		}
	}
	if err := x.Sync([]netdev.Link{link(2, "eth0"), link(3, "mgmt")}); err != nil {
		t.Errorf("without VLANs: %v", err)
	}
	if len(x.refused) > 0 || len(x.links) != 2 {
		t.Errorf("%v and %v are kept", x.refused, x.links)
	}
	h.events = slices.DeleteFunc(h.events, func(e string) bool { return strings.Contains(e, "mgmt") || strings.HasPrefix(e, "forget") })
	slices.Sort(h.events)
	want := []string{"clean", "set eth0 attach=true target=true", "set eth1 attach=false target=true", "set eth1.7 attach=true target=true"}
	if diff := cmp.Diff(want, h.events); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestXDPHiddenTags checks that native XDP is not attached to interfaces that receive frames of
// VLANs without their tags, whether the VLANs are on the interface or on its bond or bridge, and is
// attached when the driver leaves the tags in.
func TestXDPHiddenTags(t *testing.T) {
	t.Parallel()
	vlan := func(index int, name string, on int) netdev.Link {
		l := link(index, name)
		l.Kind, l.PeerIndex, l.PeerElsewhere = "vlan", on, false
		return l
	}
	port := func(index int, name string, master int) netdev.Link {
		l := card(index, name, "pci")
		l.Master = master
		return l
	}
	veth := link(10, "veth0")
	veth.Kind = "veth"
	links := []netdev.Link{
		card(2, "eth0", "pci"), card(3, "eth1", "pci"), vlan(4, "eth1.7", 3),
		port(5, "eth2", 6), port(6, "bond0", 7), link(7, "br0"), vlan(8, "br0.7", 7),
		port(9, "eth3", 20), veth, vlan(11, "veth0.7", 10), link(20, "br1"),
	}
	for name, c := range map[string]struct {
		choice config.XDP
		hidden string // interfaces whose driver strips tags
		want   []string
	}{
		"native, all strip": {config.XDPNative, "eth0 eth1 eth2 eth3 bond0 br0 br1 veth0", []string{"eth0", "eth3"}},
		"auto, all strip":   {config.XDPAuto, "eth0 eth1 eth2 eth3 bond0 br0 br1 veth0", []string{"eth0", "eth3"}},
		"native, none does": {config.XDPNative, "veth0", []string{"eth0", "eth1", "eth2", "eth3"}},
		"auto, one does":    {config.XDPAuto, "eth2 veth0", []string{"eth0", "eth1", "eth3"}},
		"generic":           {config.XDPGeneric, "", []string{"eth0", "eth3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			features := map[int]netdev.XDPFeatures{}
			for _, l := range links {
				features[l.Index] = forwards
			}
			hidden := strings.Fields(c.hidden)
			h := &fakeHooks{}
			x := NewXDP(h, XDPConfig{
				Choice: c.choice, Features: func() (map[int]netdev.XDPFeatures, error) { return features, nil },
				HidesTags: func(l netdev.Link) bool { return slices.Contains(hidden, l.Name) },
			}, slog.New(slog.DiscardHandler))
			err := x.Sync(links)
			for _, name := range []string{"eth0", "eth1", "eth2", "eth3", "veth0"} {
				// auto is for network cards only
				attached := slices.Contains(h.events, "set "+name+" attach=true target=true")
				if want := slices.Contains(c.want, name); attached != want {
					t.Errorf("%s: attached %t, want %t", name, attached, want)
				}
				isReported := err != nil && strings.Contains(err.Error(), "XDP is not attached to "+name+": it has VLAN interfaces")
				if want := c.choice != config.XDPAuto && !slices.Contains(c.want, name); isReported != want {
					t.Errorf("%s: the error names it: %t, want %t: %v", name, isReported, want, err)
				}
				report, wanted := x.Reports()[name]
				off := strings.HasPrefix(report, "off: it has VLAN interfaces")
				if attached != (report == string(XDPMode(c.choice))) || !attached && wanted != off {
					t.Errorf("%s: attached %t, and reported %q", name, attached, report)
				}
			}
			var shown []string
			for _, s := range x.HiddenTags() {
				if strings.HasPrefix(s.Interface, "eth") && s.Attached != slices.Contains(c.want, s.Interface) {
					t.Errorf("%s: shown as attached: %t", s.Interface, s.Attached)
				}
				shown = append(shown, s.Interface)
			}
			for _, name := range shown {
				if !slices.Contains(hidden, name) || c.choice == config.XDPGeneric {
					t.Errorf("%s is shown to hide tags", name)
				}
			}
			if c.choice == config.XDPAuto && slices.Contains(hidden, "eth2") != slices.Contains(shown, "eth2") {
				t.Errorf("shown: %v", shown)
			}
		})
	}
}
