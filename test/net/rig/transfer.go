package rig

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

// TransferSize returns how many bytes a test of bulk transfers sends over each path. It exceeds the
// windows of both ends.
func TransferSize() int64 {
	if IsLong() {
		return 1 << 30
	}
	return 64 << 20
}

// SumServer is a handler of ServeTCP that answers with the checksum of all received data.
func SumServer(c *net.TCPConn) {
	defer c.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.CopyBuffer(sum, reader{c}, make([]byte, 1<<20)); err == nil {
		_, _ = c.Write(sum.Sum(nil))
	}
}

// SendSummed sends data to a SumServer, and returns an error unless the checksum is correct.
func SendSummed(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		return err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.CopyBuffer(io.MultiWriter(c, sum), reader{NewStream(bytes, 1)}, make([]byte, 1<<20)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != string(sum.Sum(nil)) {
		err = errors.New("the endpoint received something else")
	}
	return err
}

// stream is pseudo-random data in which each block is different, so a checksum detects loss,
// duplication and reordering.
type stream struct {
	remaining   int64
	block       [1 << 16]byte
	blockNumber uint64
	unread      []byte
}

// NewStream returns a stream of the given length. Its data depends on the seed.
func NewStream(bytes int64, seed uint64) io.Reader {
	s := &stream{remaining: bytes}
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
	if s.remaining == 0 {
		return 0, io.EOF
	}
	if len(s.unread) == 0 {
		binary.LittleEndian.PutUint64(s.block[:], s.blockNumber)
		s.blockNumber++
		s.unread = s.block[:]
	}
	n := copy(p[:min(int64(len(p)), s.remaining)], s.unread)
	s.unread, s.remaining = s.unread[n:], s.remaining-int64(n)
	return n, nil
}

// Digest is the length and checksum of a stream.
type Digest struct {
	bytes int64
	sum   uint32
}

// DigestOf reads a stream to its end.
func DigestOf(r io.Reader) (Digest, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(h, r, make([]byte, 1<<20))
	return Digest{n, h.Sum32()}, err
}

// reader hides the other methods of a connection, which io.Copy would prefer to its buffer.
type reader struct{ io.Reader }

// ServeTransfer returns the server's side of Transfer. The client sends a stream and half-closes
// the connection. The server then answers with the digest of this stream, sends its own stream and
// closes.
func ServeTransfer(bytes int64) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		got, err := DigestOf(reader{c})
		if err != nil {
			return
		}
		if err := binary.Write(c, binary.BigEndian, []uint64{uint64(got.bytes), uint64(got.sum)}); err != nil {
			return
		}
		_, _ = io.CopyBuffer(c, NewStream(bytes, 2), make([]byte, 1<<20))
	}
}

// Transfer runs the client's side, and returns an error unless both streams arrive complete.
func Transfer(c *net.TCPConn, bytes int64) error {
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	want, err := DigestOf(NewStream(bytes, 1))
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{c}, NewStream(bytes, 1), make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	var received [2]uint64
	if err := binary.Read(c, binary.BigEndian, &received); err != nil {
		return fmt.Errorf("after half-close: %w", err)
	}
	if got := (Digest{int64(received[0]), uint32(received[1])}); got != want {
		return fmt.Errorf("the endpoint got %+v of %+v", got, want)
	}
	if want, err = DigestOf(NewStream(bytes, 2)); err != nil {
		return err
	}
	got, err := DigestOf(reader{c})
	if err == nil && got != want {
		err = fmt.Errorf("the client got %+v of %+v", got, want)
	}
	return err
}
