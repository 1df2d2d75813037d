package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Kinds of attempts of clients.
const (
	attemptHeld  = "held"  // an exchange of a connection that is held
	attemptKnown = "known" // a connection of an address that had one before
	attemptFirst = "first" // the first connection of an address
	attemptLarge = "large" // a datagram in fragments, and its answer
)

// connectPatience is how long a client waits for a connection and its answer.
const connectPatience = 1500 * time.Millisecond

// knownClients is the number of addresses that connect repeatedly.
const knownClients = 100

// manyV4 and manyV6 are the networks of the simulated clients' addresses, behind the client.
func manyV4() netip.Prefix { return netip.MustParsePrefix("10.98.0.0/15") }
func manyV6() netip.Prefix { return netip.MustParsePrefix("2001:db8:98::/47") }

// clientAddress returns the n-th address of a kind. Each IPv6 client has a network of its own.
func clientAddress(v6 bool, kind string, n int) netip.Addr {
	network := byte(0x98)
	if kind == attemptFirst {
		network = 0x99
	}
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, network, byte(n >> 8), byte(n), 15: 1})
	}
	return netip.AddrFrom4([4]byte{10, network - 0x98 + 98, byte(n >> 8), byte(n)})
}

// clientAddresses returns the first n addresses of known clients.
func clientAddresses(v6 bool, n int) (out []netip.Addr) {
	for i := range n {
		out = append(out, clientAddress(v6, attemptKnown, i))
	}
	return out
}

// clients simulates real clients: some use connections that they hold, others open a connection,
// make one request and close it.
type clients struct {
	to      netip.AddrPort
	held    int
	every   time.Duration // between exchanges of a held connection
	newEach time.Duration // between new connections of each kind
	udp     int           // destination port of large datagrams; 0: none are sent

	mu  sync.Mutex
	out io.Writer
	wg  sync.WaitGroup
}

// clientsMain is the program of the clients: `bench clients [flags] ADDRESS:PORT` prints a line for
// each attempt until SIGTERM.
func clientsMain(ctx context.Context, args []string) error {
	c := clients{out: os.Stdout}
	flags := flag.NewFlagSet("clients", flag.ContinueOnError)
	flags.IntVar(&c.held, "held", 100, "connections to hold")
	flags.DurationVar(&c.every, "every", 100*time.Millisecond, "time between two exchanges of a held connection")
	flags.DurationVar(&c.newEach, "new", 20*time.Millisecond, "time between new connections: one from a known address, and one from a new address")
	flags.IntVar(&c.udp, "udp", 0, "port to send large datagrams to; 0: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if c.to, err = netip.ParseAddrPort(flags.Arg(0)); err != nil {
		return fmt.Errorf("usage: bench clients [flags] ADDRESS:PORT: %w", err)
	}
	return c.run(ctx)
}

func (c *clients) run(ctx context.Context) error {
	for i := range c.held {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.to.String())
		if err != nil {
			return fmt.Errorf("connection %d to hold: %w", i+1, err)
		}
		c.wg.Go(func() { c.hold(ctx, conn, c.every*time.Duration(i)/time.Duration(c.held)) })
	}
	for n := range knownClients {
		if err := c.introduce(ctx, n); err != nil {
			return fmt.Errorf("the first connection of client %d: %w", n+1, err)
		}
	}
	tick := time.NewTicker(c.newEach)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.wg.Wait()
			return nil
		}
		c.wg.Go(func() {
			c.attempt(ctx, attemptKnown, func() error { return c.connect(ctx, attemptKnown, n%knownClients) })
		})
		c.wg.Go(func() { c.attempt(ctx, attemptFirst, func() error { return c.connect(ctx, attemptFirst, n) }) })
		if c.udp > 0 {
			c.wg.Go(func() { c.attempt(ctx, attemptLarge, func() error { return c.sendLarge(ctx, n) }) })
		}
	}
}

// introduce makes a client known. It retries, so a balancer with occasional failures can be
// measured too.
func (c *clients) introduce(ctx context.Context, n int) (err error) {
	for range 5 {
		if err = c.connect(ctx, attemptKnown, n); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// hold exchanges bytes over a connection until an exchange fails.
func (c *clients) hold(ctx context.Context, conn net.Conn, after time.Duration) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	for next := time.After(after); ; next = time.After(c.every) {
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
		if c.attempt(ctx, attemptHeld, func() error { return exchangeByte(conn) }) != nil {
			return
		}
	}
}

// connect opens a connection from the n-th address of a kind, asks once, and closes it.
func (c *clients) connect(ctx context.Context, kind string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	from := clientAddress(c.to.Addr().Is6(), kind, n)
	conn, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}).DialContext(ctx, "tcp", c.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	return exchangeByte(conn)
}

// sendLarge exchanges datagrams of several fragments from the address of a known client.
func (c *clients) sendLarge(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	from := netip.AddrPortFrom(clientAddress(c.to.Addr().Is6(), attemptKnown, n%knownClients), 0)
	to := netip.AddrPortFrom(c.to.Addr(), uint16(c.udp))
	conn, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(from)}).DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	return exchangeLarge(conn)
}

// exchangeLarge sends a datagram of 3,000 bytes and waits for one as large.
func exchangeLarge(conn net.Conn) error {
	const size = 3000
	b := make([]byte, 2*size)
	if _, err := conn.Write(b[:size]); err != nil {
		return err
	}
	n, err := conn.Read(b)
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%d bytes came back: %w", n, err)
	}
	return nil
}

func exchangeByte(conn net.Conn) error {
	b := []byte{1}
	if _, err := conn.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, b)
	return err
}

// attempt runs do and prints the result. At the end of the program an unfinished attempt is marked
// as cut short.
func (c *clients) attempt(ctx context.Context, kind string, do func() error) error {
	start := time.Now()
	err := do()
	a := attempt{Kind: kind, At: start, Took: time.Since(start), Result: resultOf(err)}
	if err != nil && ctx.Err() != nil {
		a.Result = attemptCut
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.out, a)
	return err
}

// resultOf returns the word for an error.
func resultOf(err error) string {
	var timeout net.Error
	switch {
	case err == nil:
		return attemptOK
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	}
	return "other"
}

// honestWorkload is the load of well-behaved clients: connect, request, close, as fast as possible.
func honestWorkload() workload {
	return workload{
		name: "flood-honest", title: "honest load for twice as long: connect, request, response, close, 50 streams of " + strconv.Itoa(knownClients) + " addresses",
		unit: "connections/s", onRequest: true, columns: honestColumns(),
		defaults: []string{baseline, "loxilb", "loxilb-onearm", "loxilb-fullnat", "loxilb-hostonearm", "loxilb-dsr", "nft", "haproxy"},
		service:  service{name: "crr", protocol: "tcp", port: 5005, target: 5005, udp: 5006, serve: serves("crr", 5005)}, run: measureHonest,
	}
}

func honestColumns() []column {
	return []column{
		{"connections/s", number("")},
		{"refused", number("refused")},
		{"repeated", number("repeated")},
		{"time (min, p50, p99)", times3("")},
		{"table", share("table_percent")},
	}
}

// honestTimes is how many times longer honest load lasts than a flood: source ports and closed
// connections pile up for 30 s.
const honestTimes = 2

// measureHonest measures the rate, and counts the clients that the balancer refused.
func measureHonest(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	w, err := r.watch(ctx, r.observe)
	if err != nil {
		return nil, err
	}
	out, err := r.counted(ctx, evenBalance, func() (sample, error) {
		return honestReport(r.load(filepath.Join(r.bin, "bench"), "crr", "-streams", "50", "-sources", strconv.Itoa(knownClients),
			"-seconds", strconv.FormatFloat(honestTimes*s.Seconds, 'f', -1, 64), to.String()))
	})
	details, failed := w.end()
	if err != nil {
		return nil, err
	}
	maps.Copy(out.Details, details)
	out.Details["repeated"] = float64(out.Retransmissions)
	return []sample{out}, failed
}

// honestReport counts failures. They are a result here, and do not invalidate the sample.
func honestReport(text string, err error) (sample, error) {
	r, err := parseExchanges(text, err)
	if err != nil {
		return sample{}, err
	}
	return sample{Value: r.Rate, Details: map[string]float64{
		"refused": float64(r.Errors), "min_us": r.Min, "p50_us": r.P50, "p99_us": r.P99,
	}}, nil
}
