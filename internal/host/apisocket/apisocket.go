// Package apisocket locates the UNIX socket of the API of a network namespace's daemon. The daemon
// listens there and loxicmd connects there, each by its own namespace, so they always agree.
package apisocket

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir holds the sockets of all namespaces.
const Dir = "/run/loxilb"

// Path returns the socket for this process's network namespace.
func Path() (string, error) {
	cookie, err := Cookie()
	if err != nil {
		return "", err
	}
	return filepath.Join(Dir, fmt.Sprintf("netns-%d.sock", cookie)), nil
}

// Namespace describes the network namespace of this process: "netns-4097 (lb1)".
func Namespace() string {
	cookie, err := Cookie()
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("netns-%d", cookie)
	if name := name(); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// Cookie returns the kernel's number of this process's network namespace. No other namespace gets
// it until the machine restarts.
func Cookie() (uint64, error) {
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

// name returns the name of this process's network namespace in `ip netns`, or "".
func name() string {
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
