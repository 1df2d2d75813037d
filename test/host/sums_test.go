package host

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// wire verifies the checksums of frames that leave the guest, as a network card would send them.
// Peers, bridges and other guests do not verify a partial checksum, so an error in it would have an
// effect only on a real link.
type wire struct {
	mu sync.Mutex
	wireCounts
	faults []string
	stop   func()
}

// wireCounts counts frames of TCP and UDP.
type wireCounts struct {
	checked int
	partial int // with a partial checksum
	large   int // larger than the MTU, to be segmented later
}

// maxFaults is the number of faults that are described.
const maxFaults = 5

// watchWire checks the frames that arrive at an interface of a side until it is stopped.
func watchWire(h *netnstest.Host, card string) (*wire, error) {
	var fd int
	err := h.Do(func() (err error) {
		fd, err = wireSocket(card)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s of %s: %w", card, h.Name, err)
	}
	w, stopped, done := &wire{}, make(chan struct{}), make(chan struct{})
	w.stop = sync.OnceFunc(func() {
		close(stopped)
		<-done
	})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		w.read(fd, stopped)
	}()
	return w, nil
}

// wireSocket receives frames with the guest's information about their checksums.
func wireSocket(card string) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // no frames of other interfaces
	if err != nil {
		return 0, err
	}
	link, err := interfaceIndex(fd, card)
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16 << 20},
	} {
		if err == nil {
			err = unix.SetsockoptInt(fd, option.level, option.name, option.value)
		}
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	}
	if err == nil {
		const allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // network order
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: link})
	}
	if err != nil {
		_ = unix.Close(fd)
	}
	return fd, err
}

func interfaceIndex(fd int, name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	return int(request.Uint32()), err
}

// read checks frames until it is stopped and none is waiting.
func (w *wire) read(fd int, stopped <-chan struct{}) {
	frame := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, frame)
		switch {
		case err == nil:
			w.checkFrame(frame[:n])
		case err != unix.EINTR && err != unix.EAGAIN:
			w.fault(err.Error())
			return
		default:
			select {
			case <-stopped:
				return
			default:
			}
		}
	}
}

func (w *wire) checkFrame(frame []byte) {
	header, frame := frame[:vnetHeader], frame[vnetHeader:]
	s, ok := findSum(frame)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked++
	partial := header[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0
	if partial {
		w.partial++
	}
	if header[1] != unix.VIRTIO_NET_HDR_GSO_NONE {
		w.large++
	}
	if partial && int(binary.LittleEndian.Uint16(header[6:])) != s.start {
		w.faults = append(w.faults, "a sum is to be completed at the wrong place: "+s.String())
	} else if !s.isCorrect(frame, partial) {
		w.faults = append(w.faults, fmt.Sprintf("a wrong sum (to be completed: %v, large: %v): %v",
			partial, header[1] != unix.VIRTIO_NET_HDR_GSO_NONE, s))
	}
}

func (w *wire) fault(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, text)
}

// end returns the counts, and all faults as an error.
func (w *wire) end() (wireCounts, error) {
	w.stop()
	if len(w.faults) == 0 {
		return w.wireCounts, nil
	}
	return w.wireCounts, fmt.Errorf("%d of %d frames are wrong: %s", len(w.faults), w.checked,
		strings.Join(w.faults[:min(maxFaults, len(w.faults))], "; "))
}

// sum is the position of a frame's innermost transport header, and what its checksum covers.
type sum struct {
	protocol  int
	addresses []byte // of both ends
	start     int    // of the transport header
	length    int    // of it and its payload
}

const (
	vnetHeader = 10 // struct virtio_net_hdr
	ethernet   = 14
	guePort    = 6080
)

func (s sum) String() string {
	return fmt.Sprintf("protocol %d, addresses %x, %d bytes", s.protocol, s.addresses, s.length)
}

// findSum finds the transport header of TCP or UDP, also in tunnels, but not in fragments.
func findSum(frame []byte) (s sum, ok bool) {
	if len(frame) < ethernet {
		return s, false
	}
	for at := ethernet; ; {
		if s, ok = parseIP(frame, at); !ok {
			return s, false
		}
		switch {
		case s.protocol == unix.IPPROTO_IPIP || s.protocol == unix.IPPROTO_IPV6:
			at = s.start
		case s.protocol == unix.IPPROTO_UDP && binary.BigEndian.Uint16(frame[s.start+2:]) == guePort:
			at = s.start + 8 // GUE variant 1 has no header
		default:
			return s, s.protocol == unix.IPPROTO_TCP || s.protocol == unix.IPPROTO_UDP
		}
	}
}

// parseIP parses the IP header at an offset.
func parseIP(frame []byte, at int) (s sum, ok bool) {
	const shortest = 20 + 8
	if len(frame) < at+shortest {
		return s, false
	}
	ip := frame[at:]
	switch ip[0] >> 4 {
	case 4:
		header := int(ip[0]&0xf) * 4
		s = sum{int(ip[9]), ip[12:20], at + header, int(binary.BigEndian.Uint16(ip[2:])) - header}
		if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 { // a fragment
			return s, false
		}
	case 6:
		s = sum{int(ip[6]), ip[8:min(40, len(ip))], at + 40, int(binary.BigEndian.Uint16(ip[4:]))}
	default:
		return s, false
	}
	return s, s.length >= 8 && s.start+s.length <= len(frame)
}

// isCorrect reports whether the checksum is correct. A partial checksum covers the pseudo header, a
// complete one everything.
func (s sum) isCorrect(frame []byte, partial bool) bool {
	pseudo := add(add(0, s.addresses), binary.BigEndian.AppendUint16(nil, uint16(s.protocol))) + uint32(s.length)
	if !partial {
		if s.protocol == unix.IPPROTO_UDP && binary.BigEndian.Uint16(frame[s.start+6:]) == 0 {
			return true // no checksum
		}
		return fold(add(fold(pseudo), frame[s.start:s.start+s.length])) == 0xffff
	}
	at := s.start + 16
	if s.protocol == unix.IPPROTO_UDP {
		at = s.start + 6
	}
	return (fold(pseudo)+0xffff-uint32(binary.BigEndian.Uint16(frame[at:])))%0xffff == 0
}

// add adds the words of b to a sum without folding carries.
func add(total uint32, b []byte) uint32 {
	for len(b) >= 2 {
		total += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	return total
}

func fold(total uint32) uint32 {
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return total
}
