package record

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// randomConnection returns a random connection.
func randomConnection(r *rand.Rand) report.ConnectionCopy {
	is6 := r.IntN(2) == 0
	at := func() netip.AddrPort {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 32
		a := netip.AddrFrom16(b)
		if !is6 {
			b[0] = 10
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrPortFrom(a, uint16(r.Uint32()))
	}
	c := report.ConnectionCopy{
		Protocol: lb.UDP, Client: at(), VIP: at(), Source: at(), Endpoint: at(),
		Flags: byte(r.Uint32()) &^ 1, Generation: byte(r.Uint32()), Idle: decodeAge(byte(r.IntN(200))),
	}
	for _, p := range bitPairs {
		if r.IntN(2) == 0 {
			c.Traits |= p.trait
			c.Hop |= p.hop
		}
	}
	if r.IntN(2) == 0 {
		c.Mark = r.Uint32() | 1
	}
	switch r.IntN(5) {
	case 0: // UDP
	case 1:
		c.Protocol = lb.SCTP
		c.Numbers = report.TCPNumbers{Acked: r.Uint32() | 1, ReplyAcked: r.Uint32() | 1}
	default:
		c.Protocol = lb.TCP
		if c.Traits&traitOneWay == 0 && r.IntN(2) == 0 {
			c.Hop |= hopProxy
		}
		c.Numbers = report.TCPNumbers{Sent: r.Uint32(), ReplySent: r.Uint32()}
		c.Numbers.ReplyAcked = c.Numbers.Sent - uint32(r.IntN(1<<22))
		c.Numbers.Acked = c.Numbers.ReplySent - uint32(r.IntN(1<<22)) + 7
	}
	return c
}

// withRoundedAge returns a connection with its age as Append encodes it.
func withRoundedAge(c report.ConnectionCopy) report.ConnectionCopy {
	c.Idle = decodeAge(encodeAge(c.Idle))
	return c
}

// TestRoundTrip checks that connections survive encoding, one after the other, and how long records
// are.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var all []byte
	var want []report.ConnectionCopy
	for range 2000 {
		c := randomConnection(r)
		before := len(all)
		all = Append(all, &c)
		most := 45
		if isIPv6(&c) {
			most = 90
		}
		if c.Mark != 0 {
			most += markLength
		}
		if n := len(all) - before; n > most || n > MaxLength {
			t.Errorf("%d bytes, want at most %d: %+v", n, most, c)
		}
		want = append(want, withRoundedAge(c))
	}
	for i, c := range want {
		got, rest, err := Decode(all)
		if err != nil || got != c {
			t.Fatalf("record %d: %v\n%+v, want\n%+v", i, err, got, c)
		}
		all = rest
	}
	if len(all) > 0 {
		t.Errorf("%d bytes are left", len(all))
	}
}

// TestLengths checks that records are as long as documented.
func TestLengths(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/adr/0092-connection-sync.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(b)), " ")
	want := fmt.Sprintf("%d bytes (TCP over IPv4; IPv6 and NAT64 %d, UDP %d or %d, SCTP %d or %d, a mark %d more)",
		lengthOf(formTCP, false), lengthOf(formTCP|formIPv6, false), lengthOf(0, false), lengthOf(formIPv6, false),
		lengthOf(0, true), lengthOf(formIPv6, true), lengthOf(formMark, false)-lengthOf(0, false))
	if !strings.Contains(text, want) {
		t.Errorf("docs/adr/0092-connection-sync.md lacks %q", want)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		c := randomConnection(r)
		b := Append(nil, &c)
		if want := lengthOf(b[0], c.Protocol == lb.SCTP); len(b) != want {
			t.Errorf("a record of form %#x has %d bytes, not %d", b[0], len(b), want)
		}
	}
}

// TestAges checks that an encoded age is 0 to 12.5 % longer than the age, and does not grow when it
// is encoded again.
func TestAges(t *testing.T) {
	t.Parallel()
	for d := time.Duration(0); d < 2*time.Hour; d += d/50 + 3*time.Millisecond {
		got := decodeAge(encodeAge(d))
		if got < d || got > d+d/7+ageUnit {
			t.Errorf("%v is encoded as %v", d, got)
		}
		if again := decodeAge(encodeAge(got)); again != got {
			t.Errorf("%v is encoded as %v", got, again)
		}
	}
	if got := decodeAge(encodeAge(1000 * time.Hour)); got < 2*time.Hour {
		t.Errorf("1000 h are encoded as %v", got)
	}
}

// TestNumbersFarApart checks that numbers too far apart to be encoded stay too far apart to be
// believed.
func TestNumbersFarApart(t *testing.T) {
	t.Parallel()
	c := randomConnection(rand.New(rand.NewPCG(3, 4)))
	c.Protocol = lb.TCP
	for _, d := range []uint32{1 << 23, 1 << 30, 1 << 31, ^uint32(1 << 30)} {
		c.Numbers = report.TCPNumbers{Sent: 5, ReplySent: 9, ReplyAcked: 5 - d, Acked: 9 - d}
		got, _, err := Decode(Append(nil, &c))
		if err != nil {
			t.Fatal(err)
		}
		const mostAhead = 1 << 22
		if got.Numbers.Sent-got.Numbers.ReplyAcked < mostAhead || got.Numbers.ReplySent-got.Numbers.Acked < mostAhead {
			t.Errorf("%d apart: %+v", d, got.Numbers)
		}
	}
}

// TestMerge checks that copies of one connection give the same result in any order, however often
// each is merged, and also without those that a later copy includes.
func TestMerge(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		history := life(r, randomConnection(r))
		want := history[0]
		for _, c := range history {
			want = Merge(want, c)
		}
		for range 20 {
			got := history[r.IntN(len(history))]
			for _, i := range append(r.Perm(len(history)), r.Perm(len(history))...) {
				if r.IntN(3) > 0 {
					got = Merge(got, history[i])
				} else {
					got = Merge(history[i], got)
				}
			}
			if got != want {
				t.Fatalf("%+v, want\n%+v", got, want)
			}
		}
		// all but the last are lost, and the last is sent again
		if got := Merge(history[0], history[len(history)-1]); got != want {
			t.Fatalf("after losses: %+v, want\n%+v", got, want)
		}
	}
}

// life returns copies of a connection, each of which includes the one before.
func life(r *rand.Rand, c report.ConnectionCopy) []report.ConnectionCopy {
	c.Idle = time.Minute
	list := []report.ConnectionCopy{c}
	for range 6 {
		c.Flags |= 2 << r.IntN(7)
		c.Idle -= time.Duration(r.IntN(5)) * time.Second
		if c.Protocol == lb.SCTP { // the client restarts
			c.Idle -= time.Second
			c.Numbers = report.TCPNumbers{Acked: r.Uint32() | 1, ReplyAcked: r.Uint32() | 1}
			list = append(list, c)
			continue
		}
		c.Numbers.Sent += uint32(r.IntN(1 << 16))
		c.Numbers.ReplySent += uint32(r.IntN(1 << 16))
		c.Numbers.Acked += uint32(r.IntN(1 << 16))
		c.Numbers.ReplyAcked += uint32(r.IntN(1 << 16))
		list = append(list, c)
	}
	return list
}

// TestMergeLives checks that of two connections of the same client's port the later one remains,
// whichever copy comes first.
func TestMergeLives(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		earlier := randomConnection(r)
		later := earlier
		later.Generation++
		later.Numbers.Sent += 1 + uint32(r.IntN(1<<20))
		later.Flags = 2
		if r.IntN(2) == 0 {
			earlier.Idle += time.Second
		}
		if Merge(earlier, later) != later || Merge(later, earlier) != later {
			t.Fatalf("the earlier connection remains:\n%+v\n%+v", earlier, later)
		}
	}
}

// FuzzDecode checks that no input ends the decoder, that it reads no further than its input, and
// that what it accepts is what Append makes.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		c := randomConnection(r)
		f.Add(Append(nil, &c))
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, err := Decode(b)
		if err != nil {
			if !bytes.Equal(rest, b) {
				t.Errorf("%d bytes are left of %d after an error", len(rest), len(b))
			}
			return
		}
		again, after, err := Decode(Append(nil, &c))
		if err != nil || len(after) > 0 || again != c {
			t.Errorf("%+v is encoded as %+v: %v", c, again, err)
		}
	})
}

// BenchmarkAppend measures the encoder, per record.
func BenchmarkAppend(b *testing.B) {
	c := randomConnection(rand.New(rand.NewPCG(11, 12)))
	buf := make([]byte, 0, MaxLength)
	for b.Loop() {
		buf = Append(buf[:0], &c)
	}
}

// BenchmarkDecode measures the decoder, per record.
func BenchmarkDecode(b *testing.B) {
	c := randomConnection(rand.New(rand.NewPCG(11, 12)))
	buf := Append(nil, &c)
	for b.Loop() {
		if _, _, err := Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}
