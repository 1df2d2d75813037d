package net_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"
)

// stream is pseudo-random data with its place in it: nothing may be lost, doubled or out of order unseen.
type stream struct {
	left  int64
	block [1 << 16]byte
	at    uint64
	rest  []byte
}

func newStream(bytes int64, seed uint64) *stream {
	s := &stream{left: bytes}
	x := seed | 1
	for i := 0; i < len(s.block); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(s.block[i:], x)
	}
	return s
}

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if len(s.rest) == 0 {
		binary.LittleEndian.PutUint64(s.block[:], s.at)
		s.at++
		s.rest = s.block[:]
	}
	n := copy(p[:min(int64(len(p)), s.left)], s.rest)
	s.rest, s.left = s.rest[n:], s.left-int64(n)
	return n, nil
}

// digest is the length and checksum of a stream.
type digest struct {
	bytes int64
	sum   uint32
}

func digestOf(r io.Reader) (digest, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(h, r, make([]byte, 1<<20))
	return digest{n, h.Sum32()}, err
}

// reader hides the other methods of a connection, which io.Copy would prefer to its buffer.
type reader struct{ io.Reader }

// The protocol of transfer: the client sends a stream and finishes sending (a half-close); the server, having seen
// the end, answers with the digest of what came, sends a stream of its own and closes.
func serveTransfer(bytes int64) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		got, err := digestOf(reader{c})
		if err != nil {
			return
		}
		if err := binary.Write(c, binary.BigEndian, []uint64{uint64(got.bytes), uint64(got.sum)}); err != nil {
			return
		}
		_, _ = io.CopyBuffer(c, newStream(bytes, 2), make([]byte, 1<<20))
	}
}

// transfer runs the client's side and compares both streams.
func transfer(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	want, err := digestOf(newStream(bytes, 1))
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{c}, newStream(bytes, 1), make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	var there [2]uint64
	if err := binary.Read(c, binary.BigEndian, &there); err != nil {
		return fmt.Errorf("after half-close: %w", err)
	}
	if got := (digest{int64(there[0]), uint32(there[1])}); got != want {
		return fmt.Errorf("the endpoint got %+v of %+v", got, want)
	}
	if want, err = digestOf(newStream(bytes, 2)); err != nil {
		return err
	}
	got, err := digestOf(reader{c})
	if err == nil && got != want {
		err = fmt.Errorf("the client got %+v of %+v", got, want)
	}
	return err
}

// TestTransfer: a gibibyte each way over one connection, the second way after a half-close of the first.
func TestTransfer(t *testing.T) {
	const gibibyte = 1 << 30
	r := newRig(t, options{})
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", serveTransfer(gibibyte)); err != nil {
			t.Fatal(err)
		}
	}
	r.loxicmd("create lb %s --tcp=9:5001 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=9:5001 --endpoints=%s", vip6, endpoints6())
	for _, vip := range []string{vip4, vip6} {
		start := time.Now()
		if err := transfer(r.dial(join(vip, 9)), gibibyte); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
		t.Logf("%s: 2 GiB in %v", vip, time.Since(start).Round(time.Millisecond))
	}
}

// TestHalfClose: after the client has finished sending, the endpoint goes on for as long as it likes, and the other
// way round.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	proceed := make(chan struct{})
	serverFirst := func(c *net.TCPConn) { // finishes first, and still listens
		if c.CloseWrite() != nil {
			return
		}
		line, err := io.ReadAll(c)
		if err == nil && string(line) == "after your end" {
			proceed <- struct{}{}
		}
	}
	clientFirst := func(c *net.TCPConn) { // answers after the client's end
		text, err := io.ReadAll(c)
		if err == nil {
			<-proceed
			_, _ = c.Write(append([]byte("got "), text...))
		}
	}
	if err := errors.Join(r.Endpoints[0].ServeTCP(":1", serverFirst), r.Endpoints[0].ServeTCP(":2", clientFirst)); err != nil {
		t.Fatal(err)
	}
	r.loxicmd("create lb %s --tcp=1:1,2:2 --endpoints=31.31.31.1:1", vip4)

	slow := r.dial(join(vip4, 2))
	_, err := slow.Write([]byte("all"))
	if err = errors.Join(err, slow.CloseWrite(), slow.SetDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}

	c := r.dial(join(vip4, 1))
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Fatalf("the endpoint's end of sending came as %q, %v", rest, err)
	}
	if _, err := c.Write([]byte("after your end")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// serverFirst has got the line and lets clientFirst answer.
	if text, err := io.ReadAll(slow); err != nil || string(text) != "got all" {
		t.Errorf("after the client's end of sending came %q, %v", text, err)
	}
}
