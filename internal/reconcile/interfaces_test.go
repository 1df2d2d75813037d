package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/datapath"
	"loxilb/internal/netdev"
)

// hooks note what is asked of the data path, in order; those named in broken fail.
type hooks struct {
	events []string
	broken map[string]bool
}

func (h *hooks) note(format string, args ...any) error {
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

func (h *hooks) SetLink(i datapath.Interface) error {
	return h.note("set %d peer=%v layer3=%v", i.Index, i.Peer, i.Layer3)
}
func (h *hooks) ForgetLink(index int) error        { return h.note("forget %d", index) }
func (h *hooks) Attach(i datapath.Interface) error { return h.note("attach %d", i.Index) }
func (h *hooks) SetEgress(int) error               { return nil }
func (h *hooks) Detach(index int) error            { return h.note("detach %d", index) }
func (h *hooks) DetachOrphans(keep func(index int) bool) error {
	kept := []int{}
	for i := range 10 {
		if keep(i) {
			kept = append(kept, i)
		}
	}
	return h.note("detach all but %v", kept)
}

// link makes an interface that is up; by its name it is a veth, a tunnel or plain.
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

func TestInterfaces(t *testing.T) {
	t.Parallel()
	h := &hooks{broken: map[string]bool{}}
	i := NewInterfaces(h, nil, regexp.MustCompile("^mgmt"), slog.New(slog.DiscardHandler))
	eth, veth, tun, mgmt := link(2, "eth0"), link(3, "veth1"), link(4, "tun0"), link(5, "mgmt0")
	for _, step := range []struct {
		what   string
		broken []string
		links  []netdev.Link
		want   []string // in any order
	}{
		{
			"at start", []string{"detach all but [2 3]"}, []netdev.Link{eth, veth, mgmt},
			[]string{
				"set 2 peer=false layer3=false", "set 3 peer=true layer3=false", "set 5 peer=false layer3=false",
				"attach 2", "attach 3", "detach all but [2 3] fails",
			},
		},
		{"strangers are still there", nil, []netdev.Link{eth, veth, mgmt}, []string{"detach all but [2 3]"}},
		{"nothing new", nil, []netdev.Link{eth, veth, mgmt}, nil},
		{"a tunnel comes", nil, []netdev.Link{eth, veth, tun, mgmt}, []string{"set 4 peer=false layer3=true", "attach 4"}},
		{"the veth goes", nil, []netdev.Link{eth, tun, mgmt}, []string{"detach 3", "forget 3"}},
		{
			"another cannot be attached, the third can", []string{"attach 3"},
			[]netdev.Link{eth, veth, tun, link(6, "eth1"), mgmt},
			[]string{"set 3 peer=true layer3=false", "attach 3 fails", "set 6 peer=false layer3=false", "attach 6"},
		},
		{"tried again", nil, []netdev.Link{eth, veth, tun, link(6, "eth1"), mgmt}, []string{"attach 3"}},
		{
			"one is renamed to what is not wanted", []string{"detach 6"}, []netdev.Link{eth, veth, tun, link(6, "mgmt1"), mgmt},
			[]string{"set 6 peer=false layer3=false", "detach 6 fails"},
		},
		{"tried again, too", nil, []netdev.Link{eth, veth, tun, link(6, "mgmt1"), mgmt}, []string{"detach 6"}},
	} {
		h.events = nil
		clear(h.broken)
		for _, event := range step.broken {
			h.broken[event] = true
		}
		i.Sync(step.links)
		slices.Sort(h.events)
		slices.Sort(step.want)
		if diff := cmp.Diff(step.want, h.events); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.what, diff)
		}
	}
}
