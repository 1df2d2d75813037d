package record

import (
	"errors"
	"math/rand/v2"
	"testing"

	"loxilb/internal/lb/report"
)

// TestPacked checks that packed records decode to the same connections as others, also with more
// paths than a frame can number, and that a truncated record is refused.
func TestPacked(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var paths []report.ConnectionCopy
	for range 300 {
		paths = append(paths, randomConnection(r))
	}
	for range 20 {
		var list []report.ConnectionCopy
		var packer Packer
		var frame []byte
		for range 1000 {
			c := randomConnection(r)
			one := paths[r.IntN(len(paths))]
			if one.Client.Addr().Is4() == c.Client.Addr().Is4() {
				c.VIP, c.Endpoint = one.VIP, one.Endpoint
				if c.Source = c.Client; r.IntN(2) == 0 {
					c.Source = one.Source
				}
			}
			before := len(frame)
			frame = packer.Append(frame, &c)
			if length := len(frame) - before; length > MaxPackedLength {
				t.Fatalf("%+v has %d bytes", c, length)
			}
			list = append(list, c)
		}
		var unpacker Unpacker
		rest := frame
		for i, want := range list {
			short := unpacker
			if _, _, err := short.Decode(rest[:min(len(rest), 3+r.IntN(8))]); err == nil {
				t.Fatalf("a part of record %d is accepted", i)
			}
			var got report.ConnectionCopy
			var err error
			if got, rest, err = unpacker.Decode(rest); err != nil || got != want {
				t.Fatalf("record %d is %+v, want %+v: %v", i, got, want, err)
			}
		}
		if len(rest) > 0 {
			t.Errorf("%d bytes are left", len(rest))
		}
	}
}

// TestPackedLength checks what a connection of a known path costs.
func TestPackedLength(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is6, other bool
		want       int
	}{
		"IPv4": {false, false, 21}, "IPv4, source address": {false, true, 23}, "IPv6": {true, false, 33}, "IPv6, source address": {true, true, 35},
	} {
		var packer Packer
		one := established(c.is6)
		if !c.other {
			one.Source = one.Client
		}
		first := len(packer.Append(nil, &one))
		if got := len(packer.Append(nil, &one)); got != c.want {
			t.Errorf("%s: %d bytes after %d, want %d", name, got, first, c.want)
		}
	}
}

// established returns a TCP connection.
func established(is6 bool) report.ConnectionCopy {
	r := rand.New(rand.NewPCG(3, 4))
	for {
		c := randomConnection(r)
		if c.Numbers.Sent == 0 || c.Client.Addr().Is6() != is6 || c.Mark != 0 {
			continue
		}
		c.Numbers.ReplyAcked, c.Numbers.Acked = c.Numbers.Sent, c.Numbers.ReplySent
		return c
	}
}

// FuzzPacked checks that no frame crashes the decoder, and that what it accepts is encoded again.
func FuzzPacked(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	var packer Packer
	var frame []byte
	for range 20 {
		c := randomConnection(r)
		frame = packer.Append(packer.Append(frame, &c), &c)
		f.Add(frame)
	}
	f.Add([]byte{0, 0, 0, 0, 10, 0, 0, 1, 0, 80, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		var unpacker, again Unpacker
		var packer Packer
		for len(b) > 0 {
			c, rest, err := unpacker.Decode(b)
			if err != nil {
				if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
					t.Errorf("got %v, want the error ErrShort or error ErrMalformed", err)
				}
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("a record has no bytes")
			}
			b = rest
			if same, _, err := again.Decode(packer.Append(nil, &c)); err != nil || same != c {
				t.Fatalf("%+v is encoded as %+v: %v", c, same, err)
			}
		}
	})
}

// BenchmarkPacked measures the encoder and the decoder, per record.
func BenchmarkPacked(b *testing.B) {
	c := established(false)
	buf := make([]byte, 0, MaxPackedLength)
	b.Run("append", func(b *testing.B) {
		var packer Packer
		for b.Loop() {
			buf = packer.Append(buf[:0], &c)
		}
	})
	b.Run("decode", func(b *testing.B) {
		var packer Packer
		var unpacker Unpacker
		first := packer.Append(nil, &c)
		if _, _, err := unpacker.Decode(first); err != nil {
			b.Fatal(err)
		}
		buf = packer.Append(buf[:0], &c)
		for b.Loop() {
			if _, _, err := unpacker.Decode(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
