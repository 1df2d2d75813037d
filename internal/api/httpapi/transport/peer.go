package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/machine"
)

// ErrNoPeer reports that the kernel does not know the owner of a connection.
var ErrNoPeer = errors.New("its other end is closed, or is not a socket of this network namespace")

// peers finds the user at the other end of a local TCP connection, by sock_diag.
//
// The netlink socket is opened once, in the daemon's own network namespace, and stays there
// whatever thread uses it later. A lookup costs one message to the kernel and back, some
// microseconds, independent of the number of sockets: it names one by addresses and ports.
// netlink.SocketGet dumps all sockets with these ports and returns the first one, whatever its
// addresses: it could be another user's.
type peers struct{ handle *nl.SocketHandle }

func newPeers() (*peers, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open a socket to ask for the users of connections: %w", err)
	}
	return &peers{&nl.SocketHandle{Socket: s}}, nil
}

func (p *peers) close() { p.handle.Socket.Close() }

// uid returns the user of the process that created the socket at the other end of c.
func (p *peers) uid(c net.Conn) (uint32, error) {
	remote, local := addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
	if !remote.IsValid() || !local.IsValid() {
		return 0, ErrNoPeer
	}
	peer, err := p.find(remote, local)
	if err != nil {
		return 0, err
	}
	// Without a connected socket, the kernel answers with a listening one.
	if peer.Local != remote || peer.Remote != local || !isOpen(&peer) {
		return 0, ErrNoPeer
	}
	// While our end is open, no other socket can become the other end, so the result stays valid.
	if err := stillOpen(c); err != nil {
		return 0, err
	}
	return peer.UID, nil
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// diagID is struct inet_diag_sockid.
type diagID struct {
	Sport, Dport [2]byte // big endian
	Src, Dst     [16]byte
	Interface    uint32
	Cookie       [2]uint32
}

// diagRequest is struct inet_diag_req_v2.
type diagRequest struct {
	Family, Protocol, Extensions, Pad uint8
	States                            uint32
	ID                                diagID
}

// diagSocket is struct inet_diag_msg.
type diagSocket struct {
	Family, State, Timer, Retransmits uint8
	ID                                diagID
	Expires, ReceiveQ, SendQ          uint32
	UID, Inode                        uint32
}

// Len returns the size of the request in a message.
func (r *diagRequest) Len() int { return binary.Size(r) }

// Serialize writes the request as the kernel reads it.
func (r *diagRequest) Serialize() []byte {
	b, err := binary.Append(nil, binary.NativeEndian, r)
	if err != nil {
		panic(err) // its size is fixed
	}
	return b
}

const (
	loopbackIndex = 1          // of lo, in every namespace
	noCookie      = 0xffffffff // any socket
)

// find looks up the socket with these addresses. Without NLM_F_DUMP, the kernel uses its hash table
// instead of walking it.
func (p *peers) find(src, dst netip.AddrPort) (found machine.TCPSocket, err error) {
	r := &diagRequest{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, States: 0xffffffff}
	if src.Addr().Is4() {
		r.Family = unix.AF_INET
	}
	r.ID = diagID{Interface: loopbackIndex, Cookie: [2]uint32{noCookie, noCookie}}
	binary.BigEndian.PutUint16(r.ID.Sport[:], src.Port())
	binary.BigEndian.PutUint16(r.ID.Dport[:], dst.Port())
	copy(r.ID.Src[:], src.Addr().AsSlice())
	copy(r.ID.Dst[:], dst.Addr().AsSlice())
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: p.handle}
	req.AddData(r)
	answers, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	switch {
	case errors.Is(err, syscall.ENOENT), err == nil && len(answers) == 0:
		return procSocket(src, dst) // no socket found, or no sock_diag
	case err != nil:
		return found, fmt.Errorf("the kernel does not know its owner: %w", err)
	}
	var m diagSocket
	if _, err := binary.Decode(answers[0], binary.NativeEndian, &m); err != nil {
		return found, fmt.Errorf("the kernel's answer is not understood: %w", err)
	}
	return machine.TCPSocket{
		Local: m.address(m.ID.Src, m.ID.Sport), Remote: m.address(m.ID.Dst, m.ID.Dport),
		State: machine.TCPState(m.State), UID: m.UID, Inode: m.Inode,
	}, nil
}

// procSocket finds a socket in /proc/net, for kernels without the module sock_diag. It reads all
// TCP sockets of the namespace, at some microseconds each; sock_diag costs the same for any number.
func procSocket(src, dst netip.AddrPort) (found machine.TCPSocket, err error) {
	err = machine.TCPSockets("/proc/self", func(s machine.TCPSocket) {
		if s.Local == src && s.Remote == dst {
			found = s
		}
	})
	if err != nil || !found.Local.IsValid() {
		return found, ErrNoPeer
	}
	return found, nil
}

// address is unmapped: an IPv6 socket may have an IPv4 connection.
func (m *diagSocket) address(a [16]byte, port [2]byte) netip.AddrPort {
	ip := netip.AddrFrom16(a).Unmap()
	if m.Family == unix.AF_INET {
		ip = netip.AddrFrom4([4]byte(a[:4]))
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:]))
}

// isOpen reports whether a process holds the socket. One that was closed has no inode, and the
// kernel then shows root as its user, which may be wrong.
func isOpen(s *machine.TCPSocket) bool {
	switch s.State {
	case machine.TCPEstablished, machine.TCPFinWait1, machine.TCPFinWait2:
		return s.Inode != 0
	}
	return false
}

// stillOpen fails when our end of the connection was reset.
func stillOpen(c net.Conn) error {
	var info *unix.TCPInfo
	err := onSocket(c, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	if err != nil {
		return ErrNoPeer
	}
	if s := machine.TCPState(info.State); s != machine.TCPEstablished && s != machine.TCPCloseWait {
		return ErrNoPeer
	}
	return nil
}

// onSocket calls f with the descriptor of a connection, and returns its error.
func onSocket(c net.Conn, f func(fd int) error) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return ErrNoPeer
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// peerKey is the key of the user at the other end, in the context of a connection.
type peerKey struct{}

// PeerFunc returns the user at the other end of a connection. It looks the user up once, at the
// first request.
type PeerFunc func() (uid uint32, err error)

// WithPeer lets requests of a connection find the user at its other end.
func WithPeer(ctx context.Context, f PeerFunc) context.Context {
	return context.WithValue(ctx, peerKey{}, f)
}

func (p *peers) connContext(ctx context.Context, c net.Conn) context.Context {
	return WithPeer(ctx, sync.OnceValues(func() (uint32, error) { return p.uid(c) }))
}

// PeerOf returns the user at the other end of a request's connection.
func PeerOf(r *http.Request) (uint32, error) {
	if f, ok := r.Context().Value(peerKey{}).(PeerFunc); ok {
		return f()
	}
	return 0, ErrNoPeer
}
