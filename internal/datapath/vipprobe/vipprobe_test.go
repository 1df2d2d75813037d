package vipprobe

import (
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/datapath/attach"
	"loxilb/internal/datapath/links"
	"loxilb/internal/lb"
	"loxilb/internal/netnstest/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.OwnNetwork(m)) }

// attachedToLo counts the programs at both hooks of lo.
func attachedToLo(t *testing.T, h attach.Hook) (n int) {
	t.Helper()
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}
	for side, parent := range map[ebpf.AttachType]uint32{ebpf.AttachTCXIngress: netlink.HANDLE_MIN_INGRESS, ebpf.AttachTCXEgress: netlink.HANDLE_MIN_EGRESS} {
		if h == attach.HookTCX {
			q, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: side})
			if err != nil {
				t.Fatal(err)
			}
			n += len(q.Programs)
			continue
		}
		filters, err := netlink.FilterList(lo, parent)
		if err == nil {
			n += len(filters)
		}
	}
	return n
}

// TestAttachedWhileProbing: the programs are at an interface from the first probe on, until there was none for a minute or the process ends, and what
// a killed one has left goes with the next start.
func TestAttachedWhileProbing(t *testing.T) {
	for _, hook := range []attach.Hook{attach.HookTCX, attach.HookClsact} {
		p := New(attach.New(nil, hook, nil), slog.New(slog.DiscardHandler))
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		probed := func(want int) {
			t.Helper()
			if err := p.LeadProbe(fd, attach.Interface{Index: 1, Name: "lo"}, netip.MustParseAddr("20.20.20.1"), lb.TunnelGUE); err != nil {
				t.Fatal(err)
			}
			if n := attachedToLo(t, hook); n != want {
				t.Errorf("%s: %d programs at lo, want %d", hook, n, want)
			}
		}
		none := func(when string) {
			t.Helper()
			if n := attachedToLo(t, hook); n != 0 {
				t.Errorf("%s: %d programs at lo %s", hook, n, when)
			}
		}
		probed(2)
		p.tidy(time.Now().Add(unused - time.Second))
		probed(2)
		p.tidy(time.Now().Add(unused))
		none("a minute after the last probe")
		probed(2)
		if hook == attach.HookClsact {
			p.at = map[int]links.Attachment{} // as after a kill
			if err := attach.DetachProbes(hook); err != nil {
				t.Error(err)
			}
			none("after the start that follows a kill")
			probed(2)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		none("after Close")
	}
}
