package roles_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// sighting is an answer to a request of an observer.
type sighting struct {
	at  time.Time
	mac string
}

// observer asks for a VIP's MAC address every few milliseconds, as clients without a cache do.
type observer struct {
	t      testing.TB
	vip    netip.Addr
	mac    net.HardwareAddr // of the client
	fd     int
	done   chan struct{}
	answer chan []sighting
	count  atomic.Int64 // answers
}

const askEvery = 5 * time.Millisecond

// observe starts an observer in the client.
func (p *pair) observe(vip string) *observer {
	p.t.Helper()
	o := &observer{t: p.t, vip: netip.MustParseAddr(vip), done: make(chan struct{}), answer: make(chan []sighting, 1)}
	protocol := uint16(syscall.ETH_P_ARP)
	if o.vip.Is6() {
		protocol = syscall.ETH_P_IPV6
	}
	protocol = protocol<<8 | protocol>>8 // network order
	err := p.client.Do(func() error {
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
		p.t.Fatal(err)
	}
	go o.run()
	return o
}

func (o *observer) run() {
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
		for end := time.Now().Add(askEvery); time.Now().Before(end); time.Sleep(time.Millisecond) {
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
func (o *observer) request() []byte {
	if target := o.vip.AsSlice(); o.vip.Is4() {
		request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, o.mac...)
		request = append(request, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		request = append(append(request, o.mac...), 10, 0, 0, 9, 0, 0, 0, 0, 0, 0)
		return append(request, target...)
	}
	target := o.vip.As16()
	source := netip.MustParseAddr("2001:db8::9").As16()
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
func (o *observer) answerer(f []byte) net.HardwareAddr {
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

// view is what an observer saw.
type view struct {
	both   time.Duration // the longest time in which both nodes answered
	silent time.Duration // the longest time without an answer
	last   string        // MAC of the last answer
	took   time.Duration // from the beginning to the first answer of the other node
}

// end stops an observer. began is when something happened.
func (o *observer) end(began time.Time) view {
	o.t.Helper()
	close(o.done)
	seen := <-o.answer
	_ = syscall.Close(o.fd)
	if len(seen) == 0 {
		return view{silent: time.Since(began)}
	}
	var v view
	lastOf := map[string]time.Time{}
	v.last = seen[len(seen)-1].mac
	var overlap time.Time
	first := seen[0].mac
	for i, s := range seen {
		if i > 0 {
			v.silent = max(v.silent, s.at.Sub(seen[i-1].at))
		}
		lastOf[s.mac] = s.at
		answering := 0
		for _, at := range lastOf {
			if s.at.Sub(at) < 4*askEvery {
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
			v.both = max(v.both, s.at.Sub(overlap))
		}
		if s.mac != first && v.took == 0 {
			v.took = s.at.Sub(began)
		}
	}
	return v
}
