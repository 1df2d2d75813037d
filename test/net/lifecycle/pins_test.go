package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// hostWithDaemon returns a host with one link and a daemon. Its pins are in a subdirectory of
// parent.
func hostWithDaemon(t *testing.T, l *netnstest.Lab, parent, name string) (*netnstest.Host, *netnstest.Daemon) {
	t.Helper()
	host, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Host(name + "-peer")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Link(netnstest.End{Host: host, Interface: "eth0"}, netnstest.End{Host: peer, Interface: "eth0"}, 0); err != nil {
		t.Fatal(err)
	}
	d, err := host.StartDaemon(t.Context(), netnstest.DaemonOptions{Bin: rig.Bin(), Args: []string{"--pin-path", filepath.Join(parent, name)}})
	if err != nil {
		t.Fatal(err)
	}
	return host, d
}

// mapIDs returns the ids of the maps that are pinned below a directory.
func mapIDs(t *testing.T, dir string) (ids []ebpf.MapID) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "maps", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no maps in %s: %v", dir, err)
	}
	for _, path := range paths {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		ids = append(ids, id)
		_ = m.Close()
	}
	return ids
}

// TestRemovedNamespaces checks that a start of any daemon removes the pins of earlier daemons in
// namespaces that no longer exist, such as those of containers. It keeps the pins of a killed
// daemon in a namespace that still exists.
//
// P20 The next start of any daemon removes all pins of network namespaces that no longer exist
func TestRemovedNamespaces(t *testing.T) {
	t.Parallel()
	l := labtest.New(t)
	parent := pinParent(t)
	var removed []ebpf.MapID
	for i := range 3 {
		ended, err := netnstest.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ended.Close() })
		host, d := hostWithDaemon(t, ended, parent, fmt.Sprintf("gone%d", i))
		dir := filepath.Join(parent, fmt.Sprintf("gone%d", i))
		removed = append(removed, mapIDs(t, dir)...)
		link, err := host.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Netlink().LinkDel(link); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if links, err := os.ReadDir(filepath.Join(dir, "links")); err != nil || len(links) > 1 { // the link of lo may stay
				return fmt.Errorf("links %v, %w", links, err)
			}
			return nil
		})
		d.Kill()
		if err := ended.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, killed := hostWithDaemon(t, l, parent, "killed")
	alive := mapIDs(t, filepath.Join(parent, "killed"))
	killed.Kill()

	_, next := hostWithDaemon(t, l, parent, "next")
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
		for _, id := range removed {
			m, err := ebpf.NewMapFromID(id)
			if err == nil {
				_ = m.Close()
			}
			if !errors.Is(err, os.ErrNotExist) { // the kernel may not have ended the last namespace at that start
				next.Stop()
				return errors.Join(fmt.Errorf("map %d still exists: %w", id, err), next.Start(ctx))
			}
		}
		return nil
	})
	for _, id := range alive {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Errorf("a map of an existing namespace was removed: %v", err)
			continue
		}
		_ = m.Close()
	}
	if err := killed.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

// pinParent returns a directory of the test in the BPF file system.
func pinParent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/bpf", "loxilb-net-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestOneDaemon checks that a second daemon with the same pins exits with an error that names the
// first one's process. While a daemon runs, --detach needs --force. A killed daemon does not block
// the next one.
//
// P18 One daemon at a time serves a network namespace; a second one exits with an error that names
// the process of the first
func TestOneDaemon(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
	bin := rig.Program("loxilb")
	args := []string{bin, "--pin-path", netnstest.PinPath(r.Dir()), "--state-dir", t.TempDir(), "--socket="}
	want := fmt.Sprintf("is in use by process %d", r.Pid())
	for _, more := range []string{"--port=11112", "--detach"} {
		out, err := r.LB.Run(append(args, more)...)
		if err == nil || !strings.Contains(out, want) || strings.Count(strings.TrimSpace(out), "\n") != 0 {
			t.Errorf("%s: %v, %q, want one sentence with %q", more, err, out, want)
		}
	}
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep2", "ep3")

	r.Signal(syscall.SIGSTOP) // a daemon that hangs still holds the lock
	if out, err := r.LB.Run(append(args, "--detach")...); err == nil || !strings.Contains(out, want) {
		t.Errorf("the pins of a hanging daemon: %v, %q", err, out)
	}
	r.Kill()
	r.Restart() // the kernel has released the lock
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")

	for i := range 10 {
		r.Loxicmd("create lb 20.20.21.%d --tcp=80:5001 --endpoints=%s", i+1, rig.Endpoints4())
	}
	if out, err := r.LB.Run(append(args, "--detach", "--force")...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The daemon owns no VIP: it neither restores those that detach has removed, nor adds new ones.
	_, _ = r.Command("create", "lb", "20.20.22.1", "--tcp=80:5001", "--endpoints="+rig.Endpoints4())
	if out := labtest.Run(t, r.LB, "ip", "-brief", "address", "show", "dev", "lo"); strings.Contains(out, "20.20.") {
		t.Errorf("VIPs are left: %s", out)
	}
	if pins := r.Pins(); len(pins) > 0 {
		t.Errorf("still pinned: %v", pins)
	}
	r.WantNoAnswer(rig.Join(rig.VIP4, 80))
	if out := r.Loxicmd("get status --failed"); !strings.Contains(out, "nothing is balanced") {
		t.Errorf("statuses of a daemon without data path:\n%s", out)
	}
	r.Stop()
	r.Restart()
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
	if out := r.Loxicmd("get status --failed"); strings.Contains(out, "nothing is balanced") {
		t.Errorf("after a restart:\n%s", out)
	}
}
