package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SocketDir has the API's UNIX sockets of all network namespaces.
const SocketDir = "/run/loxilb"

// SocketPath returns the API's UNIX socket for this process's network namespace. The daemon listens
// there and loxicmd connects there, each by its own namespace, so they always agree.
func SocketPath() (string, error) {
	cookie, err := NamespaceCookie()
	if err != nil {
		return "", err
	}
	return filepath.Join(SocketDir, fmt.Sprintf("netns-%d.sock", cookie)), nil
}

// Namespace describes the network namespace of this process, as in "netns-4097 (lb1)".
func Namespace() string {
	cookie, err := NamespaceCookie()
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("netns-%d", cookie)
	if name := namespaceName(); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// NamespaceCookie returns the kernel's number of this process's network namespace. No other
// namespace gets it until the machine restarts.
func NamespaceCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("find the network namespace: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("find the network namespace: %w", err)
	}
	return cookie, nil
}

// namespaceName returns the name of this process's network namespace in `ip netns`, or "".
func namespaceName() string {
	const names = "/run/netns"
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return ""
	}
	list, err := os.ReadDir(names)
	if err != nil {
		return "" // no namespace has a name
	}
	for _, e := range list {
		if info, err := os.Stat(filepath.Join(names, e.Name())); err == nil && os.SameFile(own, info) {
			return e.Name()
		}
	}
	return ""
}
