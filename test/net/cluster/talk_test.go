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
	// messageLength is that of a message: the number of its connection, and its own.
	messageLength = 16
	// quiet is how long a flow of datagrams waits for an answer before it repeats itself.
	quiet = 200 * time.Millisecond
	// maxSilence is the time without an answer after which a connection counts as broken.
	maxSilence = 15 * time.Second
	// young is an age below which a connection may break: its record is on the way.
	young = 10 * time.Millisecond
	// notable is the time for an answer that is noted.
	notable = 50 * time.Millisecond
)

// target is a service that clients talk to.
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

// load is how many connections clients hold and open.
type load struct {
	TCP       int           `json:"tcp"`
	UDP       int           `json:"udp"`
	PerSecond int           `json:"perSecond"`
	Pace      time.Duration `json:"pace"` // between two messages of a connection
	only      string        // mode, over IPv4; empty: all
}

// targets returns the services of a protocol that clients talk to.
func (l *load) targets(network string) []target {
	if l.only != "" {
		return []target{{l.only, network, false}}
	}
	return targets(network)
}

// loss is a connection that broke, or could not be opened.
type loss struct {
	target target
	born   birth
	age    time.Duration // when it had its last answer
	opened bool
	err    error
}

// crowd is clients that hold connections and talk, and others that come and go.
type crowd struct {
	f       *fleet
	load    load
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	number  atomic.Uint64
	opened  atomic.Uint64
	dialed  atomic.Uint64
	removed atomic.Uint32 // number of the endpoint that was removed last
	held    [2][]*talk    // TCP, UDP

	mu      sync.Mutex
	losses  []loss
	waits   []wait // since begin, longer than notable
	windows []window
	began   time.Time
}

// birth is when a connection was opened: from its first packet until it was answered.
type birth struct{ dialed, opened time.Time }

// wait is a time for an answer.
type wait struct {
	took   time.Duration
	target target
	born   birth
	began  time.Duration // since the case began
}

func (w wait) String() string { return fmt.Sprintf("%s from %.1f s on", w.target, w.began.Seconds()) }

// window is a time in which the router may send packets to a node that does not send records.
type window struct{ from, to time.Time }

// talk is a connection that is held.
type talk struct {
	target   target
	local    netip.AddrPort
	endpoint byte          // that has answered
	answers  atomic.Uint64 // answers
	broken   atomic.Bool
}

// serve starts the servers of the endpoints.
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

// newCrowd opens connections, and has clients talk until the test ends.
func newCrowd(f *fleet, l load) *crowd {
	f.t.Helper()
	c := &crowd{f: f, load: l}
	c.ctx, c.stop = context.WithCancel(context.Background())
	f.t.Cleanup(c.end)
	c.fill()
	each := l.targets("tcp")
	for i := range min(l.PerSecond, openers) {
		c.running.Go(func() { c.visit(each, i) })
	}
	return c
}

func (c *crowd) end() {
	c.stop()
	c.running.Wait()
}

// fill opens connections in place of broken ones.
func (c *crowd) fill() {
	c.f.t.Helper()
	for kind, want := range []int{c.load.TCP, c.load.UDP} {
		network := []string{"tcp", "udp"}[kind]
		kept := c.held[kind][:0]
		for _, k := range c.held[kind] {
			if !k.broken.Load() {
				kept = append(kept, k)
			}
		}
		c.held[kind] = kept
		all := c.load.targets(network)
		for n := len(kept); n < want; n++ {
			c.held[kind] = append(c.held[kind], c.hold(all[n%len(all)]))
		}
	}
}

// hold opens a connection and talks over it.
func (c *crowd) hold(to target) *talk {
	c.f.t.Helper()
	began := time.Now()
	conn, err := c.dial(to)
	if err != nil {
		c.f.describe(to)
		c.f.t.Fatalf("%s: %v", to, err)
	}
	k := &talk{target: to, local: netip.MustParseAddrPort(conn.LocalAddr().String())}
	c.running.Go(func() {
		defer conn.Close()
		var l *loss
		if to.network == "tcp" {
			l = c.exchange(k, conn, birth{began, time.Now()}, 0)
		} else {
			l = c.flow(k, conn)
		}
		if l != nil {
			k.broken.Store(true)
			c.lost(*l)
		}
	})
	return k
}

func (c *crowd) dial(to target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, maxSilence)
	defer cancel()
	network := 0
	if to.mode == "default" {
		network = clientsOfDefault
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

func (c *crowd) lost(l loss) {
	if c.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses = append(c.losses, l)
}

// answered notes how long an answer took.
func (c *crowd) answered(to target, born birth, took time.Duration) {
	if took < notable {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, wait{took, to, born, time.Since(c.began) - took})
}

// longest returns the longest time for an answer over a network, of connections that were not
// opened through a silent node.
func (c *crowd) longest(network string) (most wait) {
	for _, w := range c.waits {
		if w.target.network == network && w.took > most.took && !c.isYoung(w.born) {
			most = w
		}
	}
	return most
}

// exchange has messages returned over a TCP connection, at the crowd's pace: as many, or 0 for
// until the end.
func (c *crowd) exchange(k *talk, conn net.Conn, born birth, messages int) *loss {
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
			return &loss{k.target, born, last.Sub(born.opened), true, fmt.Errorf("endpoint %d, after %v: %w", k.endpoint, time.Since(c.began).Round(time.Millisecond), err)}
		}
		k.endpoint = in[messageLength]
		last = time.Now()
		c.answered(k.target, born, last.Sub(began))
		k.answers.Add(1)
		c.pause()
	}
	return nil
}

func (c *crowd) pause() {
	select {
	case <-c.ctx.Done():
	case <-time.After(c.load.Pace):
	}
}

// flow has datagrams answered. They may be lost, but always have the same endpoint.
func (c *crowd) flow(k *talk, conn net.Conn) *loss {
	out, in := make([]byte, messageLength), make([]byte, messageLength+1)
	id, endpoint, last := c.number.Add(1), byte(0), time.Now()
	born := birth{last, last}
	for n := uint64(1); c.ctx.Err() == nil; n++ {
		binary.BigEndian.PutUint64(out, id)
		binary.BigEndian.PutUint64(out[8:], n)
		began := time.Now()
		for {
			_, _ = conn.Write(out)
			_ = conn.SetReadDeadline(time.Now().Add(quiet))
			length, err := conn.Read(in)
			if err == nil && length == len(in) && string(in[:messageLength]) == string(out) {
				break
			}
			if err == nil { // the answer to a repetition
				continue
			}
			if since := time.Since(began); since > maxSilence || c.ctx.Err() != nil {
				return &loss{k.target, born, last.Sub(born.opened), true, fmt.Errorf("no answer for %v: %w", since, err)}
			}
		}
		if endpoint == 0 || endpoint == byte(c.removed.Load()) { // datagrams of a removed endpoint go to another
			endpoint = in[messageLength]
		}
		if endpoint != in[messageLength] {
			return &loss{k.target, born, last.Sub(born.opened), true, fmt.Errorf("endpoint %d answers instead of %d", in[messageLength], endpoint)}
		}
		last = time.Now()
		c.answered(k.target, born, last.Sub(began))
		k.answers.Add(1)
		c.pause()
	}
	return nil
}

// openers is how many clients open connections.
const openers = 10

// visit opens connections, exchanges two messages over each, and closes it.
func (c *crowd) visit(each []target, first int) {
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
				c.lost(loss{to, birth{began, time.Now()}, 0, false, err})
				return
			}
			c.opened.Add(1)
			defer conn.Close()
			if l := c.exchange(&talk{target: to}, conn, birth{began, time.Now()}, 2); l != nil {
				c.lost(*l)
			}
		})
	}
}

// begin forgets what was observed before. A connection that was opened through a silent node in the
// case before may still wait for an answer.
func (c *crowd) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losses, c.waits = nil, nil
	c.began = time.Now()
	c.windows = slices.DeleteFunc(c.windows, func(w window) bool { return c.began.Sub(w.to) > maxSilence })
	c.opened.Store(0)
}

// awaitAnswers waits until each connection that is held has three more answers, or is broken.
func (c *crowd) awaitAnswers() {
	c.f.t.Helper()
	all := append(append([]*talk{}, c.held[0]...), c.held[1]...)
	before := make([]uint64, len(all))
	for i, k := range all {
		before[i] = k.answers.Load()
	}
	await.NoError(c.f.t, 2*maxSilence, func() error {
		silent := 0
		for i, k := range all {
			if !k.broken.Load() && k.answers.Load() < before[i]+3 {
				silent++
			}
		}
		if silent > 0 {
			return fmt.Errorf("%d of %d connections are silent", silent, len(all))
		}
		return nil
	})
}

// expectSilence notes that a node stops sending records, until the returned function is called:
// once the router no longer sends packets there.
func (c *crowd) expectSilence() (ended func()) {
	from := time.Now().Add(-young)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.windows = append(c.windows, window{from, time.Now()})
	}
}

// isYoung reports whether a connection was opened when its record could not be sent.
func (c *crowd) isYoung(born birth) bool {
	for _, w := range c.windows {
		if born.opened.After(w.from) && born.dialed.Before(w.to) {
			return true
		}
	}
	return false
}

// describe logs what nodes and the router have of a service.
func (f *fleet) describe(to target) {
	for _, m := range f.nodes {
		if m.Daemon == nil {
			continue
		}
		out, err := m.Command("get", "ct", "--vip="+vip(to.is6, to.mode), "--proto="+to.network)
		f.t.Logf("%s: %v\n%s", m.host.Name, err, out)
	}
	for _, is6 := range []bool{false, true} {
		hops, err := f.hops(is6)
		f.t.Log(hops, err)
	}
}
