// Package session lists the TCP connections that this machine has accepted: those of people and
// programs that are served by the machine itself.
package session

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Session is one of them.
type Session struct {
	Remote, Local netip.AddrPort
	Interface     string // that has the local address; "": lo, to which packets come by any
}

// Most is how many are listed, those of ssh first.
const Most = 4096

// States of /proc/net/tcp.
const established, listening = "01", "0A"

// List are those of the network namespace of the thread that have come from outside.
func List() ([]Session, error) {
	own, err := interfaces()
	if err != nil {
		return nil, err
	}
	var all []Session
	listens := map[uint16]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/thread-self/net/" + name)
		if os.IsNotExist(err) {
			continue // there is no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
		err = each(f, func(s Session, state string) {
			switch state {
			case listening:
				listens[s.Local.Port()] = true
			case established:
				all = append(all, s)
			}
		})
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
	}
	all = slices.DeleteFunc(all, func(s Session) bool {
		_, here := own[s.Remote.Addr()]
		return here || s.Remote.Addr().IsLoopback() || !listens[s.Local.Port()]
	})
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(rank(a), rank(b)) })
	all = all[:min(len(all), Most)]
	for i := range all {
		all[i].Interface = own[all[i].Local.Addr()]
	}
	return all, nil
}

// Own reports whether one of these is an address of the network namespace, or stands for all.
func Own(list []netip.Addr) (bool, error) {
	if len(list) == 0 || slices.ContainsFunc(list, netip.Addr.IsUnspecified) {
		return true, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	wanted := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		wanted[a] = true
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && wanted[p.Addr().Unmap()]
	}), nil
}

// rank has ssh come first.
func rank(s Session) int {
	if s.Local.Port() == 22 {
		return 0
	}
	return 1
}

// interfaces are the addresses of this machine, with the interface of each; "" for those of lo, to
// which packets come by any.
func interfaces() (map[netip.Addr]string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	own := map[netip.Addr]string{}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			own[p.Addr().Unmap()] = l.Name
			if l.Flags&net.FlagLoopback != 0 {
				own[p.Addr().Unmap()] = ""
			}
		}
	}
	return own, nil
}

// each reads the lines of /proc/net/tcp or tcp6: number, local and remote address and port, state,
// and more.
func each(f *os.File, yield func(s Session, state string)) error {
	lines := bufio.NewScanner(f)
	lines.Scan() // the header
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 {
			continue
		}
		local, err := address(words[1])
		if err != nil {
			return err
		}
		remote, err := address(words[2])
		if err != nil {
			return err
		}
		yield(Session{Remote: remote, Local: local}, words[3])
	}
	return lines.Err()
}

// address reads 0100007F:0016: words in the machine's order, and a port.
func address(s string) (netip.AddrPort, error) {
	text, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(text)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
