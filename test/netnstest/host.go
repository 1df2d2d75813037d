package netnstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one network namespace.
type Host struct {
	Name      string // as given to Lab.Host
	Namespace string // its name under /run/netns, for `ip netns exec`

	lab *Lab
	ns  netns.NsHandle
	nl  *netlink.Handle

	mu      sync.Mutex
	sysctls []string // that were set, in order
}

func newHost(full, name string) (*Host, error) {
	h := &Host{Name: name, Namespace: full}
	err := onOwnThread(func() error {
		ns, err := netns.NewNamed(full)
		if err != nil {
			return fmt.Errorf("make namespace %s: %w", full, err)
		}
		h.ns = ns
		return nil
	})
	if err != nil {
		return nil, err
	}
	if h.nl, err = netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in %s: %w", full, err), h.close())
	}
	if err := h.prepare(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// prepare disables duplicate address detection, router solicitations and forwarding, which a new
// namespace inherits from the machine.
func (h *Host) prepare() error {
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "0"},
		{"net/ipv6/conf/all/forwarding", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/default/router_solicitations", "0"},
		{"net/ipv6/conf/all/disable_ipv6", "0"},
		{"net/ipv6/conf/default/disable_ipv6", "0"},
	} {
		if err := h.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return h.Up("lo")
}

// Netlink is a netlink handle of the host's namespace.
func (h *Host) Netlink() *netlink.Handle { return h.nl }

// Path returns the file of the host's namespace below /run/netns.
func (h *Host) Path() string { return filepath.Join(netnsDir, h.Namespace) }

// Sysctl sets a kernel setting of the host, its name written with slashes: net/ipv4/ip_forward.
func (h *Host) Sysctl(name, value string) error {
	err := h.Do(func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644) })
	if err != nil {
		return fmt.Errorf("set %s=%s in %s: %w", name, value, h.Name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sysctls = append(h.sysctls, name+"="+value)
	return nil
}

// Sysctls returns the kernel settings that Sysctl has set, in order.
func (h *Host) Sysctls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sysctls)
}

// Do calls f on a thread in the host's namespace. Sockets that f opens stay in the namespace, but
// goroutines that f starts run outside.
func (h *Host) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(h.ns); err != nil {
			return fmt.Errorf("enter namespace %s: %w", h.Name, err)
		}
		return f()
	})
}

// Listen opens a listening socket in the host.
func (h *Host) Listen(network, address string) (net.Listener, error) {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a datagram socket in the host.
func (h *Host) ListenPacket(network, address string) (net.PacketConn, error) {
	var p net.PacketConn
	err := h.Do(func() (err error) {
		p, err = new(net.ListenConfig).ListenPacket(context.Background(), network, address)
		return err
	})
	return p, err
}

// DialContext opens a connection from the host. The address must not be a name: the resolver would
// use other threads, outside the namespace.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dial(ctx, &net.Dialer{}, network, address)
}

func (h *Host) dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	var c net.Conn
	err := h.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

func (h *Host) close() error {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.ns.IsOpen() {
		_ = h.ns.Close()
	}
	return removeNamespace(h.Namespace)
}

// onOwnThread calls f on a thread of its own, and returns the thread to its namespace afterwards. f
// runs on its own goroutine: if the return fails, the thread ends with the goroutine.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- fmt.Errorf("open own namespace: %w", err)
			return
		}
		defer home.Close()
		finished := false
		defer func() {
			if !finished { // f panicked or ended the goroutine, as t.Fatal does
				done <- errors.New("the function did not return")
			}
		}()
		err = f()
		finished = true
		if leaveErr := netns.Set(home); leaveErr == nil {
			runtime.UnlockOSThread()
		} else {
			err = errors.Join(err, fmt.Errorf("leave namespace: %w", leaveErr))
		}
		done <- err
	}()
	return <-done
}
