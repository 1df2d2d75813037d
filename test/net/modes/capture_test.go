package modes_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/pkt"
	"loxilb/test/netnstest"
)

// packetCapture records the TCP and UDP packets of an interface, in both directions.
type packetCapture struct {
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	packets []*pkt.Packet // of TCP or UDP
}

// startCapture captures the packets of an interface until stop is called. It returns when the
// capture has started.
func startCapture(t testing.TB, h *netnstest.Host, link string) *packetCapture {
	t.Helper()
	w := &packetCapture{done: make(chan struct{})}
	err := h.Do(func() error {
		i, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.file = os.NewFile(uintptr(fd), "capture")
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	go w.read()
	t.Cleanup(func() { _ = w.file.Close() })
	return w
}

func (w *packetCapture) read() {
	defer close(w.done)
	buf := make([]byte, 1<<17)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		if p := pkt.Decode(buf[:n]); p.Proto == pkt.TCP || p.Proto == pkt.UDP {
			w.mu.Lock()
			w.packets = append(w.packets, p)
			w.mu.Unlock()
		}
	}
}

// stop ends the capture, and returns the sorted pairs of source and destination of packets from or
// to the given addresses.
func (w *packetCapture) stop(t testing.TB, of ...netip.AddrPort) [][2]netip.AddrPort {
	t.Helper()
	// The reader first reads the packets in the socket's buffer.
	if err := w.file.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if err := w.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatalf("got %v, want no error or os.ErrClosed", err)
	}
	var out [][2]netip.AddrPort
	seen := map[[2]netip.AddrPort]bool{}
	for _, p := range w.packets {
		pair := [2]netip.AddrPort{p.SrcAddr(), p.DstAddr()}
		for _, a := range of {
			if !seen[pair] && (pair[0] == a || pair[1] == a) {
				seen[pair] = true
				out = append(out, pair)
			}
		}
	}
	return out
}
