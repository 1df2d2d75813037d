package sctp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// restartAssociation ends an association at the client only, as a crash does. It opens it again
// from the same addresses and port, while the endpoint still has the old one (RFC 9260 section
// 5.2). accepted counts the endpoints' associations.
func restartAssociation(t *testing.T, r *rig.Rig, accepted *atomic.Int64, c net.Conn,
	vip string, port int, from ...string) net.Conn {
	t.Helper()
	w := startCapture(t, append(r.Endpoints[:], r.Client)...)
	before := accepted.Load()
	err := setSentLoss(r.Client, true)
	if err == nil {
		err = errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) // its ABORT is lost
	}
	if err != nil {
		t.Fatal(err)
	}
	// Until the client has sent INIT, it would answer the endpoint's packets by ABORT.
	sent := func() error { return setSentLoss(r.Client, false) }
	c = associate(t, r.Client, vip, port, sent, from...)
	exchange(t, c)
	if got := accepted.Load() - before; got != 0 {
		t.Errorf("%s: the endpoint has accepted %d associations, want a restart of the existing one", vip, got)
	}
	out := r.Loxicmd("get ct --service=%s/sctp --no-headers", rig.Join(vip, port))
	if strings.Count(out, " est ") != 2 || strings.Count(out, "\n") != 2 {
		t.Errorf("%s: connections after a restart, want one line for each direction:\n%s", vip, out)
	}
	w.wantNoAbort(t, r.Client)
	return c
}

// setSentLoss makes a host drop all packets that it sends, or none. Its links and routes stay.
func setSentLoss(h *netnstest.Host, lost bool) error {
	change := h.Netlink().QdiscDel
	if lost {
		change = h.Netlink().QdiscAdd
	}
	var errs []error
	for _, name := range []string{"eth0", "eth1"} {
		link, err := h.Netlink().LinkByName(name)
		if err != nil {
			return err
		}
		errs = append(errs, change(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: 1 << 16, Parent: netlink.HANDLE_ROOT},
			QdiscType:  "blackhole",
		}))
	}
	return errors.Join(errs...)
}

// packetCapture records the SCTP packets of hosts' interfaces, in both directions.
type packetCapture struct {
	files   []*os.File
	running sync.WaitGroup

	mu      sync.Mutex
	packets []capturedPacket
}

// capturedPacket is a packet with chunks other than DATA and SACK.
type capturedPacket struct {
	host     *netnstest.Host
	src, dst netip.AddrPort
	tag      uint32
	chunks   string // " abort init"
}

// startCapture captures packets of hosts until wantNoAbort is called.
func startCapture(t *testing.T, hosts ...*netnstest.Host) *packetCapture {
	t.Helper()
	w := &packetCapture{}
	for _, h := range hosts {
		err := h.Do(func() error {
			all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
			if err != nil {
				return err
			}
			w.files = append(w.files, os.NewFile(uintptr(fd), "capture"))
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, h := range hosts {
		w.running.Go(func() { w.read(h, w.files[i]) })
		t.Cleanup(func() { _ = w.files[i].Close() })
	}
	return w
}

func (w *packetCapture) read(h *netnstest.Host, from *os.File) {
	buf := make([]byte, 1<<17)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if p := decode(buf[:n]); p.chunks != "" {
			p.host = h
			w.mu.Lock()
			w.packets = append(w.packets, p)
			w.mu.Unlock()
		}
	}
}

// wantNoAbort ends the capture, and checks that no ABORT has reached the client.
func (w *packetCapture) wantNoAbort(t *testing.T, client *netnstest.Host) {
	t.Helper()
	for _, f := range w.files {
		// The reader first reads the packets in the socket's buffer.
		if err := f.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	w.running.Wait()
	var list strings.Builder
	for _, p := range w.packets {
		fmt.Fprintf(&list, "%s: %v > %v tag %x%s\n", p.host.Name, p.src, p.dst, p.tag, p.chunks)
		if p.host == client && p.src.Port() != clientPort && strings.Contains(p.chunks, " abort") {
			t.Errorf("an ABORT from %v has reached the client", p.src)
		}
	}
	if !strings.Contains(list.String(), " cookie-ack") {
		t.Errorf("no COOKIE ACK was captured")
	}
	if t.Failed() {
		t.Logf("captured packets:\n%s", list.String())
	}
}

// decode decodes an IP packet. A packet without SCTP has no chunks.
func decode(b []byte) (p capturedPacket) {
	const common = 12 // header of SCTP
	var src, dst netip.Addr
	switch {
	case len(b) >= 20+common && b[0] == 0x45 && b[9] == unix.IPPROTO_SCTP:
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		b = b[20:]
	case len(b) >= 40+common && b[0]>>4 == 6 && b[6] == unix.IPPROTO_SCTP:
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		b = b[40:]
	default:
		return capturedPacket{}
	}
	number := binary.BigEndian.Uint16
	p.src, p.dst = netip.AddrPortFrom(src, number(b)), netip.AddrPortFrom(dst, number(b[2:]))
	p.tag = binary.BigEndian.Uint32(b[4:])
	names := [...]string{
		1: "init", 2: "init-ack", 4: "heartbeat", 5: "heartbeat-ack", 6: "abort", 7: "shutdown", 8: "shutdown-ack",
		9: "error", 10: "cookie-echo", 11: "cookie-ack", 14: "shutdown-complete",
	}
	for b = b[common:]; len(b) >= 4; b = b[min(len(b), max(4, int(number(b[2:])+3)&^3)):] {
		if kind := int(b[0]); kind < len(names) && names[kind] != "" {
			p.chunks += " " + names[kind]
		}
	}
	return p
}
