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

// sighting is an answer to a request of an observer.
type sighting struct {
	at  time.Time
	mac string
}

// Observer asks for a VIP's MAC address every few milliseconds, as clients without a cache do. It
// sees when nobody answers, and when two nodes do.
type Observer struct {
	t         testing.TB
	vip, from netip.Addr
	mac       net.HardwareAddr // of the client
	fd        int
	done      chan struct{}
	answer    chan []sighting
	count     atomic.Int64 // answers
}

// AskEvery is the time between two requests of an observer.
const AskEvery = 5 * time.Millisecond

// Observe starts an observer at eth0 of a client, which has the address from.
func Observe(t testing.TB, client *netnstest.Host, from, vip netip.Addr) *Observer {
	t.Helper()
	o := &Observer{t: t, vip: vip, from: from, done: make(chan struct{}), answer: make(chan []sighting, 1)}
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
	var seen []sighting
	buffer := make([]byte, 2048)
	for {
		select {
		case <-o.done:
			o.answer <- seen
			return
		default:
		}
		_, _ = syscall.Write(o.fd, request) // a link that is down loses it
		for end := time.Now().Add(AskEvery); time.Now().Before(end); time.Sleep(time.Millisecond) {
			for {
				n, err := syscall.Read(o.fd, buffer)
				if err != nil {
					break
				}
				if from := o.answerer(buffer[:n]); from != nil {
					o.count.Add(1)
					seen = append(seen, sighting{time.Now(), from.String()})
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
	for i := neighborHeader - 32; i < len(f); i += 2 { // the addresses are part of it
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(f[neighborHeader+2:], ^uint16(sum>>16+sum&0xffff))
	return f
}

// answerer returns the MAC address that a frame gives for the VIP in answer to a request; nil: it
// gives none.
func (o *Observer) answerer(f []byte) net.HardwareAddr {
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

// Count returns how many answers there were.
func (o *Observer) Count() int64 { return o.count.Load() }

// View is what an observer saw.
type View struct {
	Both   time.Duration // the longest time in which both nodes answered
	Silent time.Duration // the longest time without an answer
	Last   string        // MAC of the last answer
	Took   time.Duration // from the beginning to the first answer of the other node
}

// End stops an observer. began is when something happened.
func (o *Observer) End(began time.Time) View {
	o.t.Helper()
	close(o.done)
	seen := <-o.answer
	_ = syscall.Close(o.fd)
	if len(seen) == 0 {
		return View{Silent: time.Since(began)}
	}
	var v View
	lastOf := map[string]time.Time{}
	v.Last = seen[len(seen)-1].mac
	var overlap time.Time
	first := seen[0].mac
	for i, s := range seen {
		if i > 0 {
			v.Silent = max(v.Silent, s.at.Sub(seen[i-1].at))
		}
		lastOf[s.mac] = s.at
		answering := 0
		for _, at := range lastOf {
			if s.at.Sub(at) < 4*AskEvery {
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
			v.Both = max(v.Both, s.at.Sub(overlap))
		}
		if s.mac != first && v.Took == 0 {
			v.Took = s.at.Sub(began)
		}
	}
	return v
}
