package speaker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
)

// Types of BGP messages, and what makes OPEN and UPDATE messages (RFC 4271, 4.1 to 4.3).
const (
	openMessage      = 1
	updateMessage    = 2
	keepaliveMessage = 4
	headerSize       = 19
	longHold         = 90 // seconds
	shortHold        = 3
)

func message(kind byte, body ...byte) []byte {
	b := []byte(strings.Repeat("\xff", 16))
	b = binary.BigEndian.AppendUint16(b, uint16(headerSize+len(body)))
	return append(append(b, kind), body...)
}

// open returns an OPEN message of the router's AS with a hold time and capabilities (RFC 5492).
func open(hold byte, capabilities ...byte) []byte {
	body := []byte{4, routerASN >> 8, routerASN & 0xff, 0, hold, 10, 0, 0, 2}
	body = append(body, byte(2+len(capabilities)), 2, byte(len(capabilities)))
	return message(openMessage, append(body, capabilities...)...)
}

// goodCapabilities are IPv4 unicast and AS numbers of four bytes.
var goodCapabilities = []byte{1, 4, 0, 1, 0, 1, 65, 4, 0, 0, routerASN >> 8, routerASN & 0xff}

// update returns an UPDATE message of 203.0.113.0/24 with these attributes.
func update(attributes ...byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	return message(updateMessage, append(append(body, attributes...), 24, 203, 0, 113)...)
}

// goodAttributes are an origin, a path of one AS and a next hop.
var goodAttributes = []byte{0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, routerASN >> 8, routerASN & 0xff, 0x40, 3, 4, 10, 0, 0, 2}

// attacker is a neighbor with an address of its own in the router's host, which only connects.
type attacker struct {
	addr string
	conn net.Conn
}

// attack makes a neighbor of the speaker, connects and sends messages.
func (l *link) attack(t *testing.T, c *child, number int, hold byte, messages ...[]byte) *attacker {
	t.Helper()
	a := &attacker{addr: fmt.Sprintf("10.0.0.%d", 100+number)}
	if err := l.router.AddAddress("eth0", netip.MustParsePrefix(a.addr+"/24")); err != nil {
		t.Fatal(err)
	}
	n := neighbor(a.addr)
	n.Passive, n.Hold = true, time.Duration(hold)*time.Second
	c.call("SetNeighbor", n)
	await.NoError(t, testTimeout, func() (err error) {
		if a.conn, err = a.dial(l); err != nil {
			return err
		}
		_, err = a.conn.Read(make([]byte, headerSize)) // of its OPEN; otherwise it was closed
		return err
	})
	t.Cleanup(func() { a.conn.Close() }) //nolint:errcheck // of a test
	for _, m := range messages {
		if _, err := a.conn.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *attacker) dial(l *link) (c net.Conn, err error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.addr)}, Timeout: time.Second}
	err = l.router.Do(func() error {
		c, err = dialer.DialContext(context.Background(), "tcp", "10.0.0.1:179")
		return err
	})
	return c, err
}

// keepAlive sends what keeps the session up.
func (a *attacker) keepAlive() error {
	if err := a.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := a.conn.Write(message(keepaliveMessage))
	return err
}

// TestDeafNeighbor checks that the session of a neighbor that sends, but never reads, ends within
// its hold time: it would keep routes that were withdrawn long ago, and this node all that waits
// for it (RFC 9687).
func TestDeafNeighbor(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	c := startChild(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	a := l.attack(t, c, 0, shortHold, open(shortHold, goodCapabilities...), message(keepaliveMessage))
	c.established(a.addr)
	routes := manyRoutes(2000)
	began := time.Now()
	await.NoError(t, testTimeout, func() error {
		for i := range routes {
			routes[i].MED++
			routes[i].Communities = []bgp.Community{bgp.Community(i)} // no two share an UPDATE
		}
		c.call("SetRoutes", routes)
		s, err := c.session(a.addr)
		if keep := a.keepAlive(); err == nil && s.State == Established && keep == nil {
			err = errors.New("the session is established")
		}
		return err
	})
	t.Logf("it ended after %v", time.Since(began).Round(time.Millisecond))
}

// TestMalformed checks that neighbors with unknown capabilities get a session, that malformed
// messages end it with an error that users see, and that the speaker goes on.
func TestMalformed(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	c := startChild(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	keepalive := message(keepaliveMessage)
	patched := func(b []byte, at int, value ...byte) []byte {
		b = append([]byte(nil), b...)
		copy(b[at:], value)
		return b
	}
	goodOpen := open(longHold, goodCapabilities...)
	attacks := map[string][][]byte{
		"marker":                  {patched(goodOpen, 0, 0)},
		"message too short":       {patched(goodOpen, 16, 0, 1)},
		"message too long":        {patched(goodOpen, 16, 0xff, 0xff)},
		"message of no type":      {patched(goodOpen, 18, 77)},
		"version":                 {patched(goodOpen, headerSize, 3)},
		"another AS":              {open(longHold, 1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 1, 1)},
		"hold time of 1 s":        {patched(goodOpen, headerSize+3, 0, 1)},
		"no router id":            {patched(goodOpen, headerSize+5, 0, 0, 0, 0)},
		"parameters too long":     {patched(goodOpen, headerSize+9, 0xff)},
		"capability too long":     {patched(goodOpen, headerSize+13, 0xff)},
		"capability without data": {open(longHold, 65, 0)},
		"UPDATE first":            {update(goodAttributes...)},
		"withdrawn too long":      {goodOpen, keepalive, message(updateMessage, 0xff, 0xff, 0, 0)},
		"attributes too long":     {goodOpen, keepalive, message(updateMessage, 0, 0, 0xff, 0xff)},
		"prefix of 33 bits":       {goodOpen, keepalive, message(updateMessage, append([]byte{0, 0, 0, byte(len(goodAttributes))}, append(goodAttributes, 33, 1, 2, 3, 4, 5)...)...)},
		"UPDATE without a body":   {goodOpen, keepalive, message(updateMessage)},
	}
	number := 0
	broken := map[string]string{}
	for what, messages := range attacks {
		broken[l.attack(t, c, number, longHold, messages...).addr] = what
		number++
	}
	var good []*attacker
	for what, messages := range map[string][][]byte{
		"unknown capabilities": {open(longHold, append([]byte{200, 3, 1, 2, 3, 255, 0}, goodCapabilities...)...), keepalive},
		"unknown attribute":    {goodOpen, keepalive, update(append(goodAttributes, 0xc0, 200, 2, 1, 2)...)},
	} {
		a := l.attack(t, c, number, longHold, messages...)
		t.Log(what)
		c.established(a.addr)
		good = append(good, a)
		number++
	}
	for addr, what := range broken {
		await.NoError(t, testTimeout, func() error {
			s, err := c.session(addr)
			if err == nil && (s.State == Established || s.LastError == "") {
				err = fmt.Errorf("%s: %+v", what, s)
			}
			return err
		})
		s, _ := c.session(addr)
		t.Logf("%s: %s", what, s.LastError)
	}
	if heap := c.usage().Heap; heap > 64<<20 {
		t.Errorf("the speaker uses %d MiB", heap>>20)
	}
	for _, a := range good {
		c.established(a.addr)
	}
}
