package labtest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loxilb/test/netnstest"
)

// answer is an answer to a request of an observer: when it arrived, and from where.
type answer struct {
	at  time.Time
	mac string
}

// Observer requests a VIP's MAC address every few milliseconds, as clients without a cache do. It
// detects when no node answers, and when two nodes do.
type Observer struct {
	t         testing.TB
	vip, from netip.Addr
	mac       net.HardwareAddr // of the client
	fd        int
	done      chan struct{}
	result    chan []answer
	count     atomic.Int64 // answers
}

// RequestInterval is the time between two requests of an observer.
const RequestInterval = 5 * time.Millisecond

// Observe starts an observer at eth0 of a client, which has the address from.
func Observe(t testing.TB, client *netnstest.Host, from, vip netip.Addr) *Observer {
	t.Helper()
	o := &Observer{t: t, vip: vip, from: from, done: make(chan struct{}), result: make(chan []answer, 1)}
	protocol := uint16(syscall.ETH_P_ARP)
	if o.vip.Is6() {
		protocol = syscall.ETH_P_IPV6
	}
	protocol = protocol<<8 | protocol>>8 // network order
	err := client.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		o.mac = link.HardwareAddr
		if o.fd, err = syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_NONBLOCK, int(protocol)); err != nil {
			return err
		}
		return syscall.Bind(o.fd, &syscall.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	go o.run()
	return o
}

func (o *Observer) run() {
	request := o.request()
	var seen []answer
	buffer := make([]byte, 2048)
	for {
		select {
		case <-o.done:
			o.result <- seen
			return
		default:
		}
		_, _ = syscall.Write(o.fd, request) // fails while the link is down
		for end := time.Now().Add(RequestInterval); time.Now().Before(end); time.Sleep(time.Millisecond) {
			for {
				n, err := syscall.Read(o.fd, buffer)
				if err != nil {
					break
				}
				if from := o.answeringMAC(buffer[:n]); from != nil {
					o.count.Add(1)
					seen = append(seen, answer{time.Now(), from.String()})
				}
			}
		}
	}
}

const (
	neighborHeader = 14 + 40 // before a message of neighbor discovery
	solicitation   = 135
	advertisement  = 136
)

// request returns the frame that asks for the VIP: an ARP request or a neighbor solicitation.
func (o *Observer) request() []byte {
	if target := o.vip.AsSlice(); o.vip.Is4() {
		request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, o.mac...)
		request = append(request, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		request = append(append(request, o.mac...), o.from.AsSlice()...)
		return append(append(request, 0, 0, 0, 0, 0, 0), target...)
	}
	target := o.vip.As16()
	source := o.from.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	message := append([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, target[:]...)
	message = append(append(message, 1, 1), o.mac...) // its own address, as an option
	f := append([]byte{0x33, 0x33, group[12], group[13], group[14], group[15]}, o.mac...)
	f = append(f, 0x86, 0xdd, 6<<4, 0, 0, 0, 0, byte(len(message)), syscall.IPPROTO_ICMPV6, 255)
	f = append(append(append(f, source[:]...), group[:]...), message...)
	sum := uint32(len(message)) + syscall.IPPROTO_ICMPV6
	for i := neighborHeader - 32; i < len(f); i += 2 { // the checksum covers the addresses
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[neighborHeader+2:], ^uint16(sum>>16+sum&0xffff))
	return f
}

// answeringMAC returns the VIP's MAC address if a frame is an answer for the VIP, otherwise nil.
func (o *Observer) answeringMAC(f []byte) net.HardwareAddr {
	if len(f) < 42 || string(f[0:6]) != string(o.mac) {
		return nil
	}
	if o.vip.Is4() {
		if f[21] == 2 && string(f[28:32]) == string(o.vip.AsSlice()) {
			return net.HardwareAddr(append([]byte(nil), f[22:28]...))
		}
		return nil
	}
	if len(f) >= neighborHeader+24 && f[20] == syscall.IPPROTO_ICMPV6 && f[neighborHeader] == advertisement &&
		string(f[neighborHeader+8:neighborHeader+24]) == string(o.vip.AsSlice()) {
		return net.HardwareAddr(append([]byte(nil), f[6:12]...))
	}
	return nil
}

// Count returns the number of answers so far.
func (o *Observer) Count() int64 { return o.count.Load() }

// View is the result of an observer.
type View struct {
	Overlap      time.Duration // the longest time in which both nodes answered
	Silence      time.Duration // the longest time without an answer
	LastMAC      string        // MAC address of the last answer
	FailoverTime time.Duration // from the argument of End to the first answer of the other node
}

// End stops an observer, and returns its result. FailoverTime counts from began.
func (o *Observer) End(began time.Time) View {
	o.t.Helper()
	close(o.done)
	seen := <-o.result
	_ = syscall.Close(o.fd)
	if len(seen) == 0 {
		return View{Silence: time.Since(began)}
	}
	var v View
	lastOf := map[string]time.Time{}
	v.LastMAC = seen[len(seen)-1].mac
	var overlap time.Time
	first := seen[0].mac
	for i, s := range seen {
		if i > 0 {
			v.Silence = max(v.Silence, s.at.Sub(seen[i-1].at))
		}
		lastOf[s.mac] = s.at
		answering := 0
		for _, at := range lastOf {
			if s.at.Sub(at) < 4*RequestInterval {
				answering++
			}
		}
		switch {
		case answering < 2:
			overlap = time.Time{}
		case overlap.IsZero():
			overlap = s.at
		}
		if !overlap.IsZero() {
			v.Overlap = max(v.Overlap, s.at.Sub(overlap))
		}
		if s.mac != first && v.FailoverTime == 0 {
			v.FailoverTime = s.at.Sub(began)
		}
	}
	return v
}
