package datapath

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/test/netnstest/labtest"
)

// inNamespace runs f on a thread of its own in a new network namespace, which ends with it.
func inNamespace(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
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

// vethPair creates two interfaces in the thread's namespace.
func vethPair(t testing.TB) (pair [2]Interface) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}); err != nil {
		t.Error(err)
		return pair
	}
	for i, name := range []string{"v0", "v1"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Error(err)
			return pair
		}
		pair[i] = Interface{Index: l.Attrs().Index, Name: name}
	}
	return pair
}

// occupy attaches as many programs to the egress hook of an interface as the kernel allows, and
// returns a function that detaches them.
func occupy(t testing.TB, index int) (free func()) {
	t.Helper()
	var links []link.Link
	for {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: emptyProgram(t, ebpf.SchedCLS), Attach: ebpf.AttachTCXEgress})
		if err != nil {
			break
		}
		links = append(links, l)
	}
	return func() {
		for _, l := range links {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		// A process that another test starts has copies of open descriptors until it calls
		// exec.
		labtest.Eventually(t, 10*time.Second, func(context.Context) error {
			if n := egressPrograms(t, index); n > 0 {
				return fmt.Errorf("%d programs are left", n)
			}
			return nil
		})
	}
}

func egressPrograms(t testing.TB, index int) int {
	t.Helper()
	q, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		t.Error(err)
		return -1
	}
	return len(q.Programs)
}

// TestEgressOfOneInterface checks that an interface at which replies of local endpoints cannot be
// examined fails alone: the service is applied, the other interfaces work, and only this one is
// retried. Without such endpoints nothing is left attached.
func TestEgressOfOneInterface(t *testing.T) {
	t.Parallel()
	inNamespace(t, func() {
		d, err := Load(Config{Connections: 1024})
		if err != nil {
			t.Error(err)
			return
		}
		defer d.Close()
		if d.Hook() != HookTCX {
			t.Log("a kernel without tcx has no limit of programs at a hook")
			return
		}
		pair := vethPair(t)
		bad, good := pair[0], pair[1]
		for _, i := range pair {
			if err := d.Attach(i); err != nil {
				t.Error(err)
			}
		}
		free := occupy(t, bad.Index)
		full := egressPrograms(t, bad.Index)
		local := netip.MustParseAddr("10.0.0.9")
		if err := d.SetLocalAddresses([]netip.Addr{local}); err != nil {
			t.Error(err)
		}
		if d.HasLocalEndpoints() || egressPrograms(t, good.Index) != 0 {
			t.Error("egress packets are examined without a local endpoint")
		}
		table := &bpf.ServiceTable{
			Key:       bpf.TcServiceKey{Vip: bpf.Addr(netip.MustParseAddr("20.0.0.1")), Port: bpf.Port(80), Protocol: 6},
			Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(local), Port: bpf.Port(80), Weight: 1}}, Slots: []uint32{0},
		}
		if err := d.Apply([]Change{{Key: table.Key, Table: table}})[0]; err != nil {
			t.Errorf("a failing interface fails the service: %v", err)
		}
		wantChanged(t, d, true)
		for range 2 {
			if err := d.SetEgress(bad.Index); err == nil || !strings.Contains(err.Error(), "v0") {
				t.Errorf("the error of the interface is %v", err)
			}
			if err := d.SetEgress(good.Index); err != nil {
				t.Error(err)
			}
		}
		if n, m := egressPrograms(t, good.Index), egressPrograms(t, bad.Index); n != 1 || m != full {
			t.Errorf("%d programs at the good interface, %d at the other, where %d fit", n, m, full)
		}
		free()
		if err := d.SetEgress(bad.Index); err != nil {
			t.Errorf("the retry failed: %v", err)
		}
		if n := egressPrograms(t, bad.Index); n != 1 {
			t.Errorf("%d programs after a second try", n)
		}

		d.Apply([]Change{{Key: table.Key}})
		if err := d.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		wantChanged(t, d, false)
		for _, i := range pair {
			if err := d.SetEgress(i.Index); err != nil {
				t.Error(err)
			}
			if n := egressPrograms(t, i.Index); n != 0 {
				t.Errorf("%d programs are left at %s", n, i.Name)
			}
		}
	})
}

// wantChanged checks that Changed reports whether egress packets must be examined, and that the
// packet path has the results of SetEgress and Apply so far.
func wantChanged(t testing.TB, d *Datapath, wanted bool) {
	t.Helper()
	select {
	case <-d.LocalEndpointsChanged():
	default:
		t.Errorf("there was no notification that egress changed to %v", wanted)
	}
	if d.HasLocalEndpoints() != wanted {
		t.Errorf("egress is not %v", wanted)
	}
	var notified uint32
	if err := d.collection.Variables.LocalEndpoints.Get(&notified); err != nil {
		t.Error(err)
	}
	if notified != 1 { // the last program is detached after the packet path is notified
		t.Errorf("the packet path has %d", notified)
	}
}
