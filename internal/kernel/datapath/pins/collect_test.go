package pins

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// leftPins is what a daemon leaves in a pin directory when its interfaces are removed before it
// ends: no link at an interface.
type leftPins struct {
	dir  string
	maps []ebpf.MapID
	link link.ID
}

func leavePins(t testing.TB, dir string, ns *os.File, witness bool) leftPins {
	t.Helper()
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	l := leftPins{dir: dir, maps: []ebpf.MapID{smallMap(t, dir, "one"), smallMap(t, dir, "two")}, link: socketLink(t, dir)}
	if witness {
		inside(t, ns, func() error { return Witness(dir) })
	}
	return l
}

// wantKept checks that everything still exists.
func (l leftPins) wantKept(t testing.TB, why string) {
	t.Helper()
	if _, err := os.Stat(l.dir); err != nil {
		t.Errorf("%s: %v", why, err)
	}
	if !mapExists(l.maps[0]) || !mapExists(l.maps[1]) || !linkExists(l.link) {
		t.Errorf("%s: maps or the link are gone", why)
	}
}

func (l leftPins) isRemoved() bool {
	return !mapExists(l.maps[0]) && !mapExists(l.maps[1]) && !linkExists(l.link)
}

func collect(t testing.TB, own string) Collected {
	t.Helper()
	c, err := Collect(own)
	if err != nil {
		t.Error(err)
	}
	return c
}

// TestCollect checks that pins of deleted namespaces are deleted: maps, links, and programs at the
// cgroup. Pins of an existing namespace stay, whatever keeps the namespace alive.
func TestCollect(t *testing.T) {
	t.Parallel()
	parent := scratch(t)
	at := func(format string, args ...any) string { return filepath.Join(parent, fmt.Sprintf(format, args...)) }
	if err := os.Mkdir(at("foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	var dead []leftPins
	for i := range 8 {
		ns := namespace(t)
		dead = append(dead, leavePins(t, at("dead-%d", i), ns, true))
		_ = ns.Close()
	}
	alive := map[string]leftPins{}

	open := namespace(t)
	alive["an open file"] = leavePins(t, at("open"), open, true)

	ns := namespace(t)
	alive["a bind mount"] = leavePins(t, at("mounted"), ns, true)
	mounted := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(mounted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	unmount := func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) }
	t.Cleanup(unmount)
	_ = ns.Close()

	ns = namespace(t)
	alive["a socket"] = leavePins(t, at("socket"), ns, true)
	var socket net.PacketConn
	inside(t, ns, func() (err error) {
		socket, err = net.ListenPacket("udp", ":0") //nolint:noctx // opens without waiting
		return err
	})
	defer socket.Close()
	_ = ns.Close()

	own := leavePins(t, at("own"), namespace(t), true)
	locked := leavePins(t, at("locked"), namespace(t), false)
	ns = namespace(t)
	inside(t, ns, func() error { return Witness(locked.dir) })
	lock, err := Acquire(locked.dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = ns.Close()
	alive["a lock"] = locked

	var sum Collected
	eventually(t, "pins of deleted namespaces are removed", func() bool {
		c := collect(t, own.dir)
		sum.Directories, sum.Maps, sum.Links, sum.Bytes = sum.Directories+c.Directories, sum.Maps+c.Maps, sum.Links+c.Links, sum.Bytes+c.Bytes
		for _, d := range dead {
			if !d.isRemoved() {
				return false
			}
		}
		return true
	})
	if sum.Directories != 8 || sum.Maps != 3*8 || sum.Links != 8 || sum.Bytes < 8*2*16*4096 {
		t.Errorf("the sum of removed pins is %+v", sum)
	}
	own.wantKept(t, "its own")
	for why, l := range alive {
		l.wantKept(t, "kept alive by "+why)
	}
	if _, err := os.Stat(at("foreign")); err != nil {
		t.Error(err)
	}

	// When nothing keeps the namespaces alive, their pins are deleted, too.
	unmount()
	_, _, _ = open.Close(), socket.Close(), lock.Release()
	eventually(t, "the rest is removed", func() bool {
		collect(t, own.dir)
		for _, l := range alive {
			if !l.isRemoved() {
				return false
			}
		}
		return true
	})
	own.wantKept(t, "its own")
}

// TestCollectWithoutWitness checks that directories of builds without a witness are recognized by
// the cookie in their name, if all live namespaces can be found.
func TestCollectWithoutWitness(t *testing.T) {
	t.Parallel()
	parent := scratch(t)
	at := func(name string) leftPins { return leavePins(t, filepath.Join(parent, name), nil, false) }
	unnamed, odd, dead, alive := at("by-another-name"), at("netns-x"), at("netns-1000001"), at("netns-1000002")
	unsure := collector{live: func() (map[uint64]bool, error) { return nil, errPartialView }}
	sure := collector{live: func() (map[uint64]bool, error) { return map[uint64]bool{1000002: true}, nil }}
	if c, err := unsure.collect(filepath.Join(parent, "own")); err != nil || c.Directories != 0 {
		t.Errorf("where not all can be found: %+v, %v", c, err)
	}
	dead.wantKept(t, "where not all can be found")
	if c, err := sure.collect(filepath.Join(parent, "own")); err != nil || c.Directories != 1 {
		t.Errorf("got %+v, %v, want no error, c.Directories == 1", c, err)
	}
	eventually(t, "the pins of the deleted namespace are removed", dead.isRemoved)
	unnamed.wantKept(t, "of an unknown namespace")
	odd.wantKept(t, "of an odd name")
	alive.wantKept(t, "of an existing namespace")
}

// TestCollectMoved checks that the program is also detached from an interface that moved to another
// namespace before its own ended, like a network card that returns to the machine.
func TestCollectMoved(t *testing.T) {
	t.Parallel()
	parent := scratch(t)
	first, second := namespace(t), namespace(t)
	l := leavePins(t, filepath.Join(parent, "first"), first, true)
	var index int
	inside(t, first, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "moves"}, PeerName: "peer", PeerNamespace: netlink.NsFd(second.Fd())}); err != nil {
			return err
		}
		moves, err := netlink.LinkByName("moves")
		if err != nil {
			return err
		}
		index = moves.Attrs().Index
		at, err := link.AttachTCX(link.TCXOptions{Interface: index, Attach: ebpf.AttachTCXIngress, Program: program(t, ebpf.SchedCLS, ebpf.AttachNone)})
		if err != nil {
			return err
		}
		defer at.Close()
		if err := at.Pin(filepath.Join(l.dir, Ingress, fmt.Sprint(index))); err != nil {
			return err
		}
		return netlink.LinkSetNsFd(moves, int(second.Fd()))
	})
	programs := func() (n int) {
		inside(t, second, func() error {
			moves, err := netlink.LinkByName("moves")
			if err != nil {
				return err
			}
			q, err := link.QueryPrograms(link.QueryOptions{Target: moves.Attrs().Index, Attach: ebpf.AttachTCXIngress})
			if err == nil {
				n = len(q.Programs)
			}
			return err
		})
		return n
	}
	collect(t, filepath.Join(parent, "own"))
	l.wantKept(t, "the namespace lives")
	if n := programs(); n != 1 {
		t.Fatalf("%d programs remain at the interface that moved", n)
	}
	_ = first.Close()
	eventually(t, "it is removed", func() bool {
		collect(t, filepath.Join(parent, "own"))
		return l.isRemoved()
	})
	if n := programs(); n != 0 {
		t.Errorf("%d programs are left at the interface", n)
	}
}

// TestCollectAttached checks that a directory without a witness but with a link at an interface
// belongs to a live namespace, whatever its name.
func TestCollectAttached(t *testing.T) {
	t.Parallel()
	parent := scratch(t)
	ns := namespace(t)
	l := leavePins(t, filepath.Join(parent, "netns-1000003"), nil, false)
	inside(t, ns, func() error {
		at, err := link.AttachTCX(link.TCXOptions{Interface: int(loopback), Attach: ebpf.AttachTCXIngress, Program: program(t, ebpf.SchedCLS, ebpf.AttachNone)})
		if err != nil {
			return err
		}
		defer at.Close()
		return at.Pin(filepath.Join(l.dir, Ingress, fmt.Sprint(loopback)))
	})
	c := collector{live: func() (map[uint64]bool, error) { return map[uint64]bool{}, nil }}
	if done, err := c.collect(filepath.Join(parent, "own")); err != nil || done.Directories != 0 {
		t.Errorf("got %+v, %v, want no error, done.Directories == 0", done, err)
	}
	l.wantKept(t, "attached")
	_ = ns.Close()
	eventually(t, "it is removed when its interface is gone", func() bool {
		_, err := c.collect(filepath.Join(parent, "own"))
		return err == nil && l.isRemoved()
	})
}
