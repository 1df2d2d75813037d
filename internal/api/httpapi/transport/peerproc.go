package transport

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procSocket finds a socket in /proc/net, for kernels that have sock_diag as a module which is not
// there. It reads all TCP sockets of the namespace, some microseconds for each; sock_diag costs the
// same however many there are.
func procSocket(src, dst netip.AddrPort) (*diagSocket, error) {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if m, ok := findIn(table, src, dst); ok {
			return m, nil
		}
	}
	return nil, ErrNoPeer
}

func findIn(table string, src, dst netip.AddrPort) (*diagSocket, bool) {
	f, err := os.Open(table)
	if err != nil {
		return nil, false // without IPv6 there is no tcp6
	}
	defer f.Close() //nolint:errcheck // it was read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local remote state queues timer retransmits uid timeout inode ...
		words := strings.Fields(lines.Text())
		if len(words) < 10 || procAddress(words[1]) != src || procAddress(words[2]) != dst {
			continue
		}
		state, err1 := strconv.ParseUint(words[3], 16, 8)
		uid, err2 := strconv.ParseUint(words[7], 10, 32)
		inode, err3 := strconv.ParseUint(words[9], 10, 32)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		m := &diagSocket{Family: unix.AF_INET6, State: uint8(state), UID: uint32(uid), Inode: uint32(inode)}
		m.ID.Src, m.ID.Dst = src.Addr().As16(), dst.Addr().As16()
		binary.BigEndian.PutUint16(m.ID.Sport[:], src.Port())
		binary.BigEndian.PutUint16(m.ID.Dport[:], dst.Port())
		return m, true
	}
	return nil, false
}

// procAddress reads 0100007F:1F90: the address in words of 32 bits, each in the machine's order,
// and the port.
func procAddress(s string) netip.AddrPort {
	words, portText, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(words)
	port, err2 := strconv.ParseUint(portText, 16, 16)
	if err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:])) // the text is the number's, high digits first
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}
