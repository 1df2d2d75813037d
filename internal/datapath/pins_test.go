package datapath

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/pins"
)

// inNamespace runs f on a thread of its own in a new network namespace, which ends with it.
func inNamespace(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// interfaceIn makes an interface in the thread's namespace and returns it.
func interfaceIn(t testing.TB) (netlink.Link, Interface) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}); err != nil {
		t.Error(err)
		return nil, Interface{}
	}
	l, err := netlink.LinkByName("v0")
	if err != nil {
		t.Error(err)
		return nil, Interface{}
	}
	return l, Interface{Index: l.Attrs().Index, Name: "v0"}
}

// TestCollectPins: what is left of namespaces that are gone is removed, and nothing else: not what is attached, not what
// never was, not one's own, not what others have pinned.
func TestCollectPins(t *testing.T) {
	parent := pinDir(t)
	at := func(name string) string { return filepath.Join(parent, name) }
	if err := os.Mkdir(at("foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	attach := func(name string) (d *Datapath) {
		d, err := Load(Config{Connections: 1024, PinDir: at(name)})
		if err != nil {
			t.Error(err)
			return nil
		}
		return d
	}
	inNamespace(t, func() {
		veth, iface := interfaceIn(t)
		if veth == nil {
			return
		}
		for _, name := range []string{"gone", "own", "attached", "idle"} {
			d := attach(name)
			if d == nil {
				return
			}
			if name != "idle" {
				if err := d.Attach(iface); err != nil {
					t.Error(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if name == "gone" || name == "own" { // its interface goes, what is pinned stays
				if err := netlink.LinkDel(veth); err != nil {
					t.Error(err)
				}
				if veth, iface = interfaceIn(t); veth == nil {
					return
				}
			}
		}
		if err := pins.Collect(at("own")); err != nil {
			t.Error(err)
		}
		wantFolders(t, parent, "attached", "foreign", "idle", "own")
	})
	if err := RemovePins(at("attached")); err != nil {
		t.Error(err)
	}
	wantFolders(t, parent, "foreign", "idle", "own")
}

func wantFolders(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("folders %v, want %v", got, want)
	}
}
