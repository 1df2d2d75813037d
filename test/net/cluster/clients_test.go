package cluster_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/test/await"
	"loxilb/test/netnstest"
)

const (
	// messageLength is the length of a message: the number of its connection, and its own number.
	messageLength = 16
	// resendAfter is how long a UDP client waits for an answer before it sends the message again.
	resendAfter = 200 * time.Millisecond
	// maxSilence is the time without an answer after which a connection counts as broken.
	maxSilence = 15 * time.Second
	// recordDelay is how long a node may take to send the record of a new connection. A connection
	// may break if its node falls silent within this time.
	recordDelay = 10 * time.Millisecond
	// slowAfter is the time from which on an answer is recorded as slow.
	slowAfter = 50 * time.Millisecond
)

// target is a service that clients use.
type target struct {
	mode    string
	network string // tcp or udp
	is6     bool
}

func (t target) String() string {
	return fmt.Sprintf("%s %s IPv%d", t.mode, t.network, map[bool]int{false: 4, true: 6}[t.is6])
}

func (t target) address() string {
	port := map[string]string{"tcp": "80", "udp": "53"}[t.network]
	return net.JoinHostPort(vip(t.is6, t.mode), port)
}

// targets returns all services of a protocol.
func targets(network string) (list []target) {
	for _, mode := range []string{"onearm", "fullnat", "default", "dsr"} {
		for _, is6 := range []bool{false, true} {
			list = append(list, target{mode, network, is6})
		}
	}
	return list
}

// load is the number of connections that clients hold, and the rate at which they open others.
type load struct {
	TCP       int           `json:"tcp"`
	UDP       int           `json:"udp"`
	PerSecond int           `json:"perSecond"`
	Pace      time.Duration `json:"pace"` // between two messages of a connection
	onlyMode  string        // use only this mode, over IPv4; empty: all modes
}

// targets returns the services of a protocol that clients use.
func (l *load) targets(network string) []target {
	if l.onlyMode != "" {
		return []target{{l.onlyMode, network, false}}
	}
	return targets(network)
}

// loss is a connection that broke, or could not be opened.
type loss struct {
	target target
	times  dialTimes
	age    time.Duration // at the last answer
	opened bool
	err    error
}

// clients hold connections and exchange messages over them. They also open and close others.
type clients struct {
	f       *fleet
	load    load
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	number  atomic.Uint64
	opened  atomic.Uint64
	dialed  atomic.Uint64
	removed atomic.Uint32  // number of the endpoint that was last removed
	held    [2][]*heldConn // TCP, UDP

	mu            sync.Mutex
	losses        []loss
	slowAnswers   []slowAnswer // since reset
	silentPeriods []silentPeriod
	began         time.Time
}

// dialTimes are the times of a connection's first packet, and of the answer.
type dialTimes struct{ dialed, answered time.Time }

// slowAnswer is an answer that took longer than slowAfter.
type slowAnswer struct {
	took   time.Duration
	target target
	times  dialTimes
	began  time.Duration // since the case began
}

func (w slowAnswer) String() string {
	return fmt.Sprintf("%s from %.1f s on", w.target, w.began.Seconds())
}

// silentPeriod is a time in which the router may send packets to a node that sends no records.
type silentPeriod struct{ from, to time.Time }

// heldConn is a connection that is held.
type heldConn struct {
	target   target
	local    netip.AddrPort
	endpoint byte // number of the endpoint that answers
	answers  atomic.Uint64
	broken   atomic.Bool
}

// serve starts a TCP and a UDP server on each endpoint.
func (f *fleet) serve() {
	f.t.Helper()
	for i, h := range f.endpoints {
		must(f.t, h.ServeTCP("[::]:80", func(c *net.TCPConn) { _ = echo(c, byte(i+1)) }))
		for _, is6 := range []bool{false, true} {
			for _, a := range []string{address(is6, 9, i+1), vip(is6, "dsr")} {
				must(f.t, f.serveDatagrams(h, net.JoinHostPort(a, "53"), byte(i+1)))
			}
		}
	}
}

// echo returns messages with the number of the endpoint.
func echo(c io.ReadWriter, number byte) error {
	buf := make([]byte, messageLength+1)
	buf[messageLength] = number
	for {
		if _, err := io.ReadFull(c, buf[:messageLength]); err != nil {
			return err
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
}

// serveDatagrams answers datagrams with their content and the number of the endpoint.
func (f *fleet) serveDatagrams(h *netnstest.Host, address string, number byte) error {
	p, err := h.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	f.t.Cleanup(func() { _ = p.Close() })
	go func() {
		buf := make([]byte, messageLength+1)
		for {
			n, from, err := p.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n == messageLength {
				buf[messageLength] = number
				_, _ = p.WriteTo(buf, from)
			}
		}
	}()
	return nil
}

// startClients starts clients that send messages until the test ends.
func startClients(f *fleet, l load) *clients {
	f.t.Helper()
	c := &clients{f: f, load: l}
	c.ctx, c.stop = context.WithCancel(context.Background())
	f.t.Cleanup(c.end)
	c.replaceBroken()
	each := l.targets("tcp")
	for i := range min(l.PerSecond, openers) {
		c.running.Go(func() { c.openRepeatedly(each, i) })
	}
	return c
}

func (c *clients) end() {
	c.stop()
	c.running.Wait()
}

// replaceBroken opens connections in place of broken ones.
func (c *clients) replaceBroken() {
	c.f.t.Helper()
	for kind, want := range []int{c.load.TCP, c.load.UDP} {
		network := []string{"tcp", "udp"}[kind]
		kept := c.held[kind][:0]
		for _, h := range c.held[kind] {
			if !h.broken.Load() {
				kept = append(kept, h)
			}
		}
		c.held[kind] = kept
		all := c.load.targets(network)
		for n := len(kept); n < want; n++ {
			c.held[kind] = append(c.held[kind], c.hold(all[n%len(all)]))
		}
	}
}

// hold opens a connection, and exchanges messages over it in the background.
func (c *clients) hold(to target) *heldConn {
	c.f.t.Helper()
	began := time.Now()
	conn, err := c.dial(to)
	if err != nil {
		c.f.logState(to)
		c.f.t.Fatalf("%s: %v", to, err)
	}
	h := &heldConn{target: to, local: netip.MustParseAddrPort(conn.LocalAddr().String())}
	c.running.Go(func() {
		defer conn.Close()
		var l *loss
		if to.network == "tcp" {
			l = c.exchange(h, conn, dialTimes{began, time.Now()}, 0)
		} else {
			l = c.exchangeDatagrams(h, conn)
		}
		if l != nil {
			h.broken.Store(true)
			c.recordLoss(*l)
		}
	})
	return h
}

func (c *clients) dial(to target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, maxSilence)
	defer cancel()
	network := 0
	if to.mode == "default" {
		network = defaultModeNetwork
	}
	number := firstClient + int(c.dialed.Add(1)%clientAddresses)
	from := netip.AddrPortFrom(netip.MustParseAddr(address(to.is6, network, number)), 0)
	d := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
	if to.network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	var conn net.Conn
	err := c.f.client.Do(func() (err error) {
		conn, err = d.DialContext(ctx, to.network, to.address())
		return err
	})
	return conn, err
}

func (c *clients) recordLoss(l loss) {
	if c.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses = append(c.losses, l)
}

// recordAnswer records an answer if it was slow.
func (c *clients) recordAnswer(to target, times dialTimes, took time.Duration) {
	if took < slowAfter {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowAnswers = append(c.slowAnswers, slowAnswer{took, to, times, time.Since(c.began) - took})
}

// slowest returns the slowest answer over a network. It ignores connections that were opened
// through a silent node.
func (c *clients) slowest(network string) (most slowAnswer) {
	for _, w := range c.slowAnswers {
		if w.target.network == network && w.took > most.took && !c.openedLate(w.times) {
			most = w
		}
	}
	return most
}

// exchange sends messages over a TCP connection, and checks that each is returned: the given number
// of messages, or until the clients end if it is 0.
func (c *clients) exchange(h *heldConn, conn net.Conn, times dialTimes, messages int) *loss {
	out, in := make([]byte, messageLength), make([]byte, messageLength+1)
	id, last := c.number.Add(1), time.Now()
	for n := uint64(1); c.ctx.Err() == nil && (messages == 0 || n <= uint64(messages)); n++ {
		binary.BigEndian.PutUint64(out, id)
		binary.BigEndian.PutUint64(out[8:], n)
		began := time.Now()
		_ = conn.SetDeadline(began.Add(maxSilence))
		_, err := conn.Write(out)
		if err == nil {
			_, err = io.ReadFull(conn, in)
		}
		if err == nil && string(in[:messageLength]) != string(out) {
			err = fmt.Errorf("got %x instead of %x", in, out)
		}
		if err != nil {
			return &loss{h.target, times, last.Sub(times.answered), true, fmt.Errorf("endpoint %d, after %v: %w", h.endpoint, time.Since(c.began).Round(time.Millisecond), err)}
		}
		h.endpoint = in[messageLength]
		last = time.Now()
		c.recordAnswer(h.target, times, last.Sub(began))
		h.answers.Add(1)
		c.pause()
	}
	return nil
}

func (c *clients) pause() {
	select {
	case <-c.ctx.Done():
	case <-time.After(c.load.Pace):
	}
}

// exchangeDatagrams sends datagrams, and checks that the same endpoint answers all of them.
// Datagrams may be lost.
func (c *clients) exchangeDatagrams(h *heldConn, conn net.Conn) *loss {
	out, in := make([]byte, messageLength), make([]byte, messageLength+1)
	id, endpoint, last := c.number.Add(1), byte(0), time.Now()
	times := dialTimes{last, last}
	for n := uint64(1); c.ctx.Err() == nil; n++ {
		binary.BigEndian.PutUint64(out, id)
		binary.BigEndian.PutUint64(out[8:], n)
		began := time.Now()
		for {
			_, _ = conn.Write(out)
			_ = conn.SetReadDeadline(time.Now().Add(resendAfter))
			length, err := conn.Read(in)
			if err == nil && length == len(in) && string(in[:messageLength]) == string(out) {
				break
			}
			if err == nil { // the answer to a repetition
				continue
			}
			if since := time.Since(began); since > maxSilence || c.ctx.Err() != nil {
				return &loss{h.target, times, last.Sub(times.answered), true, fmt.Errorf("no answer for %v: %w", since, err)}
			}
		}
		if endpoint == 0 || endpoint == byte(c.removed.Load()) { // another endpoint replaces a removed one
			endpoint = in[messageLength]
		}
		if endpoint != in[messageLength] {
			return &loss{h.target, times, last.Sub(times.answered), true, fmt.Errorf("endpoint %d answers instead of %d", in[messageLength], endpoint)}
		}
		last = time.Now()
		c.recordAnswer(h.target, times, last.Sub(began))
		h.answers.Add(1)
		c.pause()
	}
	return nil
}

// openers is the number of clients that open connections.
const openers = 10

// openRepeatedly opens connections, exchanges two messages over each, and closes it. It uses the
// targets in turn, beginning with the given one.
func (c *clients) openRepeatedly(each []target, first int) {
	tick := time.NewTicker(time.Second * time.Duration(min(c.load.PerSecond, openers)) / time.Duration(c.load.PerSecond))
	defer tick.Stop()
	for n := first; ; n++ {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		to := each[n%len(each)]
		c.running.Go(func() {
			began := time.Now()
			conn, err := c.dial(to)
			if err != nil {
				c.recordLoss(loss{to, dialTimes{began, time.Now()}, 0, false, err})
				return
			}
			c.opened.Add(1)
			defer conn.Close()
			if l := c.exchange(&heldConn{target: to}, conn, dialTimes{began, time.Now()}, 2); l != nil {
				c.recordLoss(*l)
			}
		})
	}
}

// reset removes the observations of the previous case. It keeps recent silent periods: connections
// that were opened in them may still wait for an answer.
func (c *clients) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses, c.slowAnswers = nil, nil
	c.began = time.Now()
	c.silentPeriods = slices.DeleteFunc(c.silentPeriods, func(w silentPeriod) bool { return c.began.Sub(w.to) > maxSilence })
	c.opened.Store(0)
}

// awaitAnswers waits until each held connection has received three more answers, or is broken.
func (c *clients) awaitAnswers() {
	c.f.t.Helper()
	all := append(append([]*heldConn{}, c.held[0]...), c.held[1]...)
	before := make([]uint64, len(all))
	for i, h := range all {
		before[i] = h.answers.Load()
	}
	await.NoError(c.f.t, 2*maxSilence, func() error {
		silent := 0
		for i, h := range all {
			if !h.broken.Load() && h.answers.Load() < before[i]+3 {
				silent++
			}
		}
		if silent > 0 {
			return fmt.Errorf("%d of %d connections get no answers", silent, len(all))
		}
		return nil
	})
}

// expectSilence begins a silent period. The caller ends it by the returned function, once the
// router no longer sends packets to the silent node.
func (c *clients) expectSilence() (ended func()) {
	from := time.Now().Add(-recordDelay)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.silentPeriods = append(c.silentPeriods, silentPeriod{from, time.Now()})
	}
}

// openedLate reports whether a connection was opened in a silent period, so its record may be lost.
func (c *clients) openedLate(times dialTimes) bool {
	for _, w := range c.silentPeriods {
		if times.answered.After(w.from) && times.dialed.Before(w.to) {
			return true
		}
	}
	return false
}

// logState logs each node's connections of a service, and the router's routes.
func (f *fleet) logState(to target) {
	for _, m := range f.nodes {
		if m.Daemon == nil {
			continue
		}
		out, err := m.Command("get", "ct", "--vip="+vip(to.is6, to.mode), "--proto="+to.network)
		f.t.Logf("%s: %v\n%s", m.host.Name, err, out)
	}
	for _, is6 := range []bool{false, true} {
		hops, err := f.nextHops(is6)
		f.t.Log(hops, err)
	}
}
