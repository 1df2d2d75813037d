package transport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// dialTime limits an attempt to reach a peer. The next attempt then comes sooner than TCP's
	// own.
	dialTime = time.Second
	// handshakeTime is the limit of a new connection's handshakes.
	handshakeTime = 3 * time.Second
	// writeTime is how long a peer may accept no data before the connection is given up.
	writeTime = 5 * time.Second
	// PingEvery is the interval of signs of life. Without them, a peer is suspected after
	// suspectAfter: sooner than routers leave it at BFD's usual 3 x 100 ms.
	PingEvery    = 100 * time.Millisecond
	suspectAfter = 250 * time.Millisecond
	// MaxSilence is how long a peer may give no sign of life before it is lost.
	MaxSilence = 4 * time.Second
	// socketBuffer bounds the data that the kernel holds for a peer; the queue is in user space.
	socketBuffer = 1 << 20
)

// ErrRefused reports that one of two nodes refuses the other, because they are incompatible.
type ErrRefused struct {
	Text      string
	Node      string // name of the peer; empty: it is not known
	Serves    bool   // the peer claims to announce its VIPs
	Certified bool   // the peer has a certificate that this node accepts
}

func (e *ErrRefused) Error() string { return e.Text }

// Conn is a connection to a peer, over which the node that has dialed sends records.
type Conn struct {
	Peer  Hello
	conn  *tls.Conn
	read  *bufio.Reader
	buf   []byte
	write sync.Mutex
	out   []byte
}

func newConn(c *tls.Conn) *Conn {
	return &Conn{conn: c, read: bufio.NewReaderSize(c, MaxFrame), buf: make([]byte, MaxFrame)}
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Abort ends the connection at once: Close waits for up to 5 s if the peer reads nothing.
func (c *Conn) Abort() error { return c.conn.NetConn().Close() }

// Remote returns the peer's address.
func (c *Conn) Remote() string { return c.conn.RemoteAddr().String() }

// Dial connects to a peer that listens at this address, and greets it. It returns ErrSelf for this
// process's own address.
func Dial(ctx context.Context, address string, own *Hello, credentials *Credentials) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	plain, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	limitBuffers(plain)
	deadline, _ := ctx.Deadline()
	_ = plain.SetDeadline(deadline)
	selected := ""
	secured := tls.Client(plain, withClaimReader(credentials.Config(), &selected))
	c := newConn(secured)
	if err := c.greet(ctx, own, credentials); err != nil {
		_ = plain.Close()
		var refused *ErrRefused
		if errors.As(err, &refused) {
			refused.Certified = secured.ConnectionState().HandshakeComplete
			refused.Serves = selected == protocolServing
			if c.Peer.Node != "" { // nodes of older versions have a Hello only
				refused.Serves = !c.Peer.Joining
				if c.Certified(credentials) == nil {
					refused.Node = c.Peer.Node
				}
			}
		}
		return nil, err
	}
	_ = plain.SetDeadline(time.Time{})
	return c, nil
}

// limitBuffers bounds the data that the kernel holds for a peer.
func limitBuffers(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
}

// greet exchanges Hellos with the node that was dialed.
func (c *Conn) greet(ctx context.Context, own *Hello, credentials *Credentials) error {
	if err := c.conn.HandshakeContext(ctx); err != nil {
		return describeDial(err)
	}
	if err := c.sendJSON(kindHello, own); err != nil {
		return err
	}
	var w welcome
	if err := c.readJSON(kindWelcome, &w); err != nil {
		return describeDial(err)
	}
	c.Peer, w.Refused = w.Hello, clip(w.Refused, maxSentence)
	c.Peer.Build = clip(c.Peer.Build, maxBuild)
	if c.Peer.Boot == own.Boot {
		return ErrSelf
	}
	if w.Refused != "" {
		return &ErrRefused{Text: w.Refused}
	}
	if err := cmp.Or(own.CheckCompatible(&c.Peer), c.Certified(credentials)); err != nil {
		return &ErrRefused{Text: err.Error()}
	}
	return nil
}

// Certified checks that this node still accepts the peer's certificate, and that it is for the
// peer's name.
func (c *Conn) Certified(credentials *Credentials) error {
	accepted, err := credentials.current().verify(c.conn.ConnectionState().PeerCertificates)
	if err != nil {
		return err
	}
	if slices.Contains(accepted.DNSNames, c.Peer.Node) {
		return nil
	}
	return fmt.Errorf("node %q has a certificate for %q, not for its own name", c.Peer.Node, accepted.DNSNames)
}

// accept greets a node that has dialed this one.
func accept(ctx context.Context, plain net.Conn, h *Host) (*Conn, error) {
	own := h.Hello()
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = plain.SetDeadline(deadline)
	secured := tls.Server(plain, withClaim(h.Credentials.Config(), own))
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, describeAlert(err)
	}
	c := newConn(secured)
	if err := c.readJSON(kindHello, &c.Peer); err != nil {
		return nil, describeAlert(err)
	}
	c.Peer.Build = clip(c.Peer.Build, maxBuild)
	judged := own.CheckCompatible(&c.Peer)
	if judged == nil {
		judged = c.Certified(h.Credentials)
	}
	if judged == nil {
		judged = h.CheckPeer(c.Remote(), &c.Peer)
	}
	w := welcome{Hello: *own}
	w.Hello.NewTable = own.NewTable && !h.HasConnectionsOf(c.Peer.Node)
	if judged != nil {
		w.Refused = judged.Error()
	}
	if err := c.sendJSON(kindWelcome, w); err != nil || judged != nil {
		return nil, errors.Join(judged, err)
	}
	// A node sends something at once, unless it has noticed that this node is connected by another
	// address. Until then, the new connection must not replace the previous one.
	if _, err := c.read.Peek(1); err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	_ = plain.SetDeadline(time.Time{})
	return c, nil
}

// errSilent reports that a node has greeted this one, and then sends nothing.
var errSilent = errors.New("the node sends nothing after its greeting")

func (c *Conn) sendJSON(k kind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.send(k, b)
}

func (c *Conn) readJSON(want kind, v any) error {
	k, b, err := readFrame(c.read, c.buf)
	if err != nil {
		return err
	}
	if k != want {
		return fmt.Errorf("the peer sent a frame of kind %d, not %d", k, want)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("the peer's greeting cannot be read: %w", err)
	}
	return nil
}

func (c *Conn) send(k kind, payload []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	c.out = appendFrame(c.out[:0], k, payload)
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := c.conn.Write(c.out)
	return err
}

// SendRecords sends records, of MaxFrame bytes at most.
func (c *Conn) SendRecords(records []byte) error { return c.send(kindRecords, records) }

// SendPacked sends packed records, of MaxFrame bytes at most, to nodes with FeaturePacked.
func (c *Conn) SendPacked(records []byte) error { return c.send(kindPacked, records) }

// SendEnds sends the age of ended connections, and their packed records, of MaxFrame bytes at most,
// to nodes with FeatureEnds.
func (c *Conn) SendEnds(ends []byte) error { return c.send(kindEnds, ends) }

// SendClients sends records of clients, of MaxFrame bytes at most.
func (c *Conn) SendClients(records []byte) error { return c.send(kindClients, records) }

// SendState sends this node's state to nodes with FeatureState.
func (c *Conn) SendState(state []byte) error { return c.send(kindState, state) }

// SendBulkEnd reports that all connections were sent.
func (c *Conn) SendBulkEnd() error { return c.send(kindBulkEnd, nil) }

// Ping keeps the connection alive. It reports whether this node announces its VIPs, and whether
// routers may have begun to send its packets to the peer. Older nodes read the first byte only.
func (c *Conn) Ping(serves, rerouted bool) error {
	return c.send(kindPing, []byte{boolByte(serves), boolByte(rerouted)})
}

func boolByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// Ack reports how many records were applied since the connection began.
func (c *Conn) Ack(records uint64) error {
	return c.send(kindAck, binary.BigEndian.AppendUint64(nil, records))
}

// ReadAcks calls yield with the numbers of records that the peer has applied, until the connection
// ends, or the peer has been silent for too long.
func (c *Conn) ReadAcks(yield func(applied uint64)) error {
	for {
		k, b, err := c.next()
		if err != nil {
			return err
		}
		if k != kindAck || len(b) != 8 {
			return fmt.Errorf("the peer sent a frame of kind %d with %d bytes", k, len(b))
		}
		yield(binary.BigEndian.Uint64(b))
	}
}

// next reads a frame. The peer sends at least one per PingEvery.
func (c *Conn) next() (kind, []byte, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(MaxSilence))
	return readFrame(c.read, c.buf)
}

// awaitFrame calls suspect if the next frame takes longer than suspectAfter.
func (c *Conn) awaitFrame(suspect func()) {
	if c.read.Buffered() > 0 {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(suspectAfter))
	if _, err := c.read.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		suspect()
	}
}

// Reader handles a peer's frames. Payloads are valid until the call returns.
type Reader struct {
	Records  func(payload []byte) error // of connections
	Packed   func(payload []byte) error // packed ones
	Ends     func(payload []byte) error // connections that have ended a while ago
	Clients  func(payload []byte) error
	State    func(payload []byte) error // the peer's state
	BulkEnd  func() error               // the peer has sent all that it had
	Serves   func()                     // the peer announces its VIPs
	Rerouted func()                     // routers may have begun to send the peer's packets here
	Idle     func() error               // no frame is waiting
	Suspect  func()                     // the peer has fallen silent
}

// ReadRecords reads frames until the connection ends.
func (c *Conn) ReadRecords(r Reader) error {
	for {
		c.awaitFrame(r.Suspect)
		k, b, err := c.next()
		if err != nil {
			return err
		}
		switch k {
		case kindRecords:
			err = r.Records(b)
		case kindPacked:
			err = r.Packed(b)
		case kindEnds:
			err = r.Ends(b)
		case kindClients:
			err = r.Clients(b)
		case kindState:
			err = r.State(b)
		case kindBulkEnd:
			err = r.BulkEnd()
		case kindPing:
			if len(b) > 0 && b[0] == 1 { // older nodes send nothing
				r.Serves()
			}
			if len(b) > 1 && b[1] == 1 {
				r.Rerouted()
			}
		default:
			err = fmt.Errorf("the peer sent a frame of kind %d", k)
		}
		if isRecords := k == kindRecords || k == kindPacked || k == kindEnds; err == nil && (!isRecords || c.read.Buffered() == 0) {
			err = r.Idle()
		}
		if err != nil {
			return err
		}
	}
}
