package machine

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TCPState is the state of a TCP socket (include/net/tcp_states.h).
type TCPState uint8

// States of sockets.
const (
	TCPEstablished TCPState = 1
	TCPFinWait1    TCPState = 4
	TCPFinWait2    TCPState = 5
	TCPCloseWait   TCPState = 8
	TCPListen      TCPState = 10
)

// TCPSocket is a TCP socket of a network namespace.
type TCPSocket struct {
	Local, Remote netip.AddrPort // IPv4 addresses are unmapped
	State         TCPState
	UID           uint32 // of its user
	Inode         uint32 // 0: no process holds it
}

// TCPSockets calls each for the TCP sockets of the network namespace of a process or thread, by its
// folder in /proc.
//
// procfs would collect them all in memory first, by deprecated calls.
func TCPSockets(process string, each func(TCPSocket)) error {
	for _, table := range []string{"tcp", "tcp6"} { // without IPv6 there is no tcp6
		err := eachSocket(filepath.Join(process, "net", table), each)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list connections: %w", err)
		}
	}
	return nil
}

func eachSocket(table string, each func(TCPSocket)) error {
	f, err := os.Open(table)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	lines := bufio.NewScanner(f)
	lines.Scan() // the header
	for lines.Scan() {
		s, err := parseSocket(lines.Text())
		if err != nil {
			return err
		}
		each(s)
	}
	return lines.Err()
}

// parseSocket parses a line: number, local and remote address, state, queues, timer, retransmits,
// user, timeout, inode, and more.
func parseSocket(line string) (s TCPSocket, err error) {
	words := strings.Fields(line)
	if len(words) < 10 {
		return s, fmt.Errorf("%q is not a socket", line)
	}
	s.Local, err = parseAddress(words[1])
	if err != nil {
		return s, err
	}
	s.Remote, err = parseAddress(words[2])
	if err != nil {
		return s, err
	}
	state, err1 := strconv.ParseUint(words[3], 16, 8)
	uid, err2 := strconv.ParseUint(words[7], 10, 32)
	inode, err3 := strconv.ParseUint(words[9], 10, 32)
	s.State, s.UID, s.Inode = TCPState(state), uint32(uid), uint32(inode)
	return s, errors.Join(err1, err2, err3)
}

// parseAddress parses 0100007F:0016: words in the machine's order, and a port.
func parseAddress(s string) (netip.AddrPort, error) {
	text, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(text)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", s)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
