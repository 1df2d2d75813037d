package attach

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
	"loxilb/test/netnstest/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.OwnNetwork(m)) }

// attachedToLo returns the number of programs at both hooks of lo.
func attachedToLo(t *testing.T, h Hook) (n int) {
	t.Helper()
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}
	for side, parent := range map[ebpf.AttachType]uint32{ebpf.AttachTCXIngress: netlink.HANDLE_MIN_INGRESS, ebpf.AttachTCXEgress: netlink.HANDLE_MIN_EGRESS} {
		if h == HookTCX {
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

// newProbes returns the probes of a data path without pins.
func newProbes(t *testing.T, h Hook) *Probes {
	t.Helper()
	c, err := loader.Open(loader.Settings{Connections: 1024})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewProbes(c, New(nil, h, nil))
}

// TestAnswersEnd checks that a packet from the VIP to the source of a probe is an answer only while
// the probe waits, and that other packets are not changed. A minute after the last probe no answer
// is recognized.
func TestAnswersEnd(t *testing.T) {
	p := newProbes(t, HookTCX)
	vip, endpoint, own, other := netip.MustParseAddr("20.20.20.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("192.0.2.253")
	if err := p.load(); err != nil {
		t.Fatal(err)
	}
	var rows *ebpf.Map
	if err := p.shared.Maps.ProbeAnswers.Lookup(uint32(0), &rows); err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	arrives := func(to netip.Addr, port uint16) (from netip.Addr) {
		t.Helper()
		in := dptest.TCPFrame(vip, to, 80, port)
		out := make([]byte, len(in))
		if _, err := p.objects.LoxilbProbeIn.Run(&ebpf.RunOptions{Data: in, DataOut: out}); err != nil {
			t.Fatal(err)
		}
		from, _ = netip.AddrFromSlice(out[14+12 : 14+16])
		return from
	}
	const wait = 1000
	for port, ago := range map[uint16]uint32{40000: 0, 40001: wait - 500, 40002: wait + 1, 40003: 1 << 31, 40004: ^uint32(9)} {
		key := bpf.TcConnectionKey{Saddr: bpf.Addr(vip), Daddr: bpf.Addr(own), Sport: bpf.Port(80), Dport: bpf.Port(port), Protocol: unix.IPPROTO_TCP}
		row := bpf.ProbeProbeAnswer{Endpoint: bpf.ProbeIpAddr(bpf.Addr(endpoint)), Seen: dptest.Jiffies(t) - ago, Wait: wait}
		if err := rows.Put(key, row); err != nil {
			t.Fatal(err)
		}
		want := vip
		if int32(ago) < wait && ago != 1<<31 { // a CPU whose clock is ahead has seen the last one
			want = endpoint
		}
		if from := arrives(own, port); from != want {
			t.Errorf("an answer to a probe of %d jiffies ago comes from %s, want %s", ago, from, want)
		}
		if from := arrives(other, port); from != vip {
			t.Errorf("a stranger's packet comes from %s", from)
		}
	}
	p.detachUnused(time.Now().Add(idleTimeout))
	if err := p.shared.Maps.ProbeAnswers.Lookup(uint32(0), &rows); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("answers are known without probes: %v", err)
	}
}

// TestAttachedWhileProbing checks that the programs are attached from the first probe until a
// minute after the last one, or until the process ends, and that the next start removes those of a
// killed process.
func TestAttachedWhileProbing(t *testing.T) {
	for _, hook := range []Hook{HookTCX, HookClsact} {
		p := newProbes(t, hook)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		probed := func(want int) {
			t.Helper()
			if err := p.RedirectProbe(fd, Interface{Index: 1, Name: "lo"}, ProbePath{VIP: netip.MustParseAddr("20.20.20.1"), Tunnel: lb.TunnelGUE, Wait: time.Hour}); err != nil {
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
		p.detachUnused(time.Now().Add(time.Hour + idleTimeout - time.Second))
		probed(2)
		p.detachUnused(time.Now().Add(time.Hour + idleTimeout))
		none("a minute after the last probe has ended")
		probed(2)
		if hook == HookClsact {
			p.at = map[int]Attachment{} // as after a kill
			if err := detachProbes(hook); err != nil {
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

// TestRefused checks that programs that cannot be loaded leave no map of answers.
func TestRefused(t *testing.T) {
	p := newProbes(t, HookTCX)
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	other := spec.Maps[answers].Copy()
	other.MaxEntries++ // a size other than that of the programs
	m, err := ebpf.NewMap(other)
	if err != nil {
		t.Fatal(err)
	}
	own := p.shared.Maps.ProbeAnswers
	p.shared.Maps.ProbeAnswers = m
	t.Cleanup(func() {
		p.shared.Maps.ProbeAnswers = own
		_ = m.Close()
	})
	if err := p.load(); err == nil {
		t.Fatal("programs that the kernel must refuse are loaded")
	}
	var rows *ebpf.Map
	if err := m.Lookup(uint32(0), &rows); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the map of answers is there: %v", err)
	}
}

// TestNewInterface checks that an interface that appears after the listing is found.
func TestNewInterface(t *testing.T) {
	if !interfaceExists(1, nil) || interfaceExists(1<<30, nil) {
		t.Error("lo counts as missing, or a missing interface as existing")
	}
}
