package record

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"loxilb/internal/lb/report"
)

// randomClient returns a random client, with an age in whole seconds.
func randomClient(r *rand.Rand) report.ClientCopy {
	c := randomConnection(r)
	return report.ClientCopy{
		Protocol: c.Protocol, Ranged: r.IntN(2) == 0, Client: c.Client.Addr(), VIP: c.VIP, Mark: c.Mark, Endpoint: c.Endpoint,
		Idle: time.Duration(r.Uint32()) * time.Second,
	}
}

// TestClientRoundTrip checks that clients survive encoding, how long records are, and that an age
// is rounded up.
func TestClientRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var all []byte
	var want []report.ClientCopy
	for range 2000 {
		c := randomClient(r)
		before := len(all)
		all = AppendClient(all, &c)
		length := 22
		if c.Client.Is6() {
			length = 58
		}
		if c.Mark != 0 {
			length += markLength
		}
		if n := len(all) - before; n != length {
			t.Errorf("%d bytes, want %d: %+v", n, length, c)
		}
		want = append(want, c)
	}
	for i := range want {
		got, rest, err := DecodeClient(all)
		if err != nil || got != want[i] {
			t.Fatalf("%+v, %v, want %+v", got, err, want[i])
		}
		all = rest
	}
	c := want[0]
	c.Idle = 7*24*time.Hour + 1
	if got, _, err := DecodeClient(AppendClient(nil, &c)); err != nil || got.Idle != 7*24*time.Hour+time.Second {
		t.Errorf("age %v, %v", got.Idle, err)
	}
}

// FuzzDecodeClient checks that DecodeClient accepts only what AppendClient makes.
func FuzzDecodeClient(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 10 {
		c := randomClient(r)
		f.Add(AppendClient(nil, &c))
	}
	noMark := append([]byte{clientMark}, make([]byte, clientHead-1+4+2*(4+2)+markLength)...)
	f.Add(noMark)
	mapped := append([]byte{clientIPv6}, make([]byte, clientHead-1)...)
	for range 3 { // the client without a port, VIP and endpoint with one
		mapped = append(mapped, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x00\x00\x01\x00\x00"...)
	}
	f.Add(append(mapped[:clientHead+16], mapped[clientHead+18:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, err := DecodeClient(b)
		if err != nil {
			return
		}
		if again := AppendClient(nil, &c); !bytes.Equal(again, b[:len(b)-len(rest)]) {
			t.Errorf("% x is read as %+v, which is % x", b, c, again)
		}
	})
}
