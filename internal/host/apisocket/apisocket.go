// Package apisocket says where the daemon of a network namespace has the UNIX socket of its API.
// The daemon listens there and loxicmd looks there, each by the namespace that it is in, so that
// they cannot miss each other.
package apisocket

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir holds the sockets of all namespaces.
const Dir = "/run/loxilb"

// Path is the socket for this process's network namespace.
func Path() (string, error) {
	cookie, err := Cookie()
	if err != nil {
		return "", err
	}
	return filepath.Join(Dir, fmt.Sprintf("netns-%d.sock", cookie)), nil
}

// Namespace says in words which network namespace this process is in: "netns-4097 (lb1)".
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

// Cookie is the kernel's number for this process's network namespace. No other namespace gets it
// until the machine starts again.
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

// name is what `ip netns` calls this process's network namespace, or "" when it has no name there.
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
