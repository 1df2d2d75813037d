package faulty

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// pair is two hosts with IPv4 only: the kernel would send IPv6 packets that the wire counts.
type pair struct {
	*Wire
	t  testing.TB
	to net.PacketConn
	c  net.Conn
}

const silence = 300 * time.Millisecond // after which no datagram is still in flight

func newPair(t *testing.T, seed uint64) *pair {
	t.Helper()
	l := labtest.New(t)
	var ends [2]netnstest.End
	for i, name := range []string{"a", "b"} {
		h, err := l.Host(name)
		if err == nil {
			err = h.Sysctl("net/ipv6/conf/default/disable_ipv6", "1")
		}
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+1))}}
	}
	w, err := Join(l, ends[0], ends[1], 0, seed)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{Wire: w, t: t}
	if p.to, err = ends[1].Host.ListenPacket("udp4", "10.0.0.2:5000"); err != nil {
		t.Fatal(err)
	}
	if p.c, err = ends[0].Host.DialContext(t.Context(), "udp4", "10.0.0.2:5000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.to.Close(), p.c.Close() })
	return p
}

// set applies faults between the first host and the second.
func (p *pair) set(f Faults) {
	p.t.Helper()
	if err := p.Forward.Set(f); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) counts() Counts {
	p.t.Helper()
	c, err := p.Forward.Counts()
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// send sends count datagrams, numbered from first, and returns the numbers that arrive.
func (p *pair) send(first, count int) (arrived []int) {
	p.t.Helper()
	for i := first; i < first+count; i++ {
		if err := binary.Write(p.c, binary.BigEndian, uint64(i)); err != nil {
			p.t.Fatal(err)
		}
	}
	buf := make([]byte, 64)
	for {
		if err := p.to.SetReadDeadline(time.Now().Add(silence)); err != nil {
			p.t.Fatal(err)
		}
		n, _, err := p.to.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return arrived
		}
		if err != nil || n != 8 {
			p.t.Fatalf("%d bytes, %v", n, err)
		}
		arrived = append(arrived, int(binary.BigEndian.Uint64(buf)))
	}
}

// randomNumber returns the random number that the BPF program uses for a packet and a kind of
// fault.
func randomNumber(seed, packet, what uint64) uint32 {
	z := seed + (packet*5+what+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32(z ^ z>>31)
}

// TestPerfect checks that a new wire does not change packets.
func TestPerfect(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	if got := p.send(0, 100); len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("arrived: %v", got)
	}
	if got, want := p.counts(), (Counts{Packets: 100}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}

// TestDeterministic checks that only the seed and packets' numbers determine which packets are
// lost, duplicated or delayed.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	const packets, share = 200, 0.2
	for _, seed := range []uint64{1, 2, 1 << 63} {
		p := newPair(t, seed)
		p.set(Faults{Loss: share, Duplicate: share, Delay: share, DelayTime: silence / 3})
		var want []int
		var counts Counts
		for n := range uint64(packets) {
			drawn := func(what uint64) bool { return uint64(randomNumber(seed, n, what)) < threshold(share) }
			counts.Packets++
			if drawn(0) {
				counts.Lost++
				continue
			}
			want = append(want, int(n))
			if drawn(1) {
				counts.Duplicated++
				want = append(want, int(n))
			}
			if drawn(2) {
				counts.Delayed++
			}
		}
		got := p.send(0, packets)
		if slices.IsSorted(got) {
			t.Errorf("seed %d: no datagram was delayed", seed)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: arrived\n%v, want\n%v", seed, got, want)
		}
		if got := p.counts(); got != counts {
			t.Errorf("seed %d: counts are %+v, want %+v", seed, got, counts)
		}
	}
}

// TestCorrupt checks that a wire flips a bit without updating checksums, so the receiver's kernel
// drops the packet.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.set(Faults{Corrupt: 1})
	if got := p.send(0, 300); len(got) != 0 {
		t.Errorf("%d of 300 arrived", len(got))
	}
	p.set(Faults{})
	if got := p.send(300, 3); !slices.Equal(got, []int{300, 301, 302}) {
		t.Errorf("arrived afterwards: %v", got)
	}
	if got, want := p.counts(), (Counts{Packets: 303, Corrupted: 300}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}

// TestDelay checks that a packet is delayed by the configured time, and that later packets overtake
// it.
func TestDelay(t *testing.T) {
	t.Parallel()
	const by = 100 * time.Millisecond
	p := newPair(t, 1)
	p.set(Faults{Delay: 1, DelayTime: by})
	start := time.Now()
	if _, err := p.c.Write(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		if p.counts().Delayed != 1 {
			return errors.New("the wire has not delayed the datagram")
		}
		return nil
	})
	p.set(Faults{DelayTime: by})
	if got := p.send(1, 3); !slices.Equal(got, []int{1, 2, 3, 0}) {
		t.Errorf("arrived: %v", got)
	}
	if took := time.Since(start); took < by+silence {
		t.Errorf("all arrived after %v", took-silence)
	}
}

// TestCut checks that a cut wire drops all packets, and forwards them when it is no longer cut.
func TestCut(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1)
	p.send(0, 1) // the hosts resolve each other
	if err := p.SetCut(true); err != nil {
		t.Fatal(err)
	}
	if got := p.send(1, 10); len(got) != 0 {
		t.Errorf("arrived over a cut wire: %v", got)
	}
	if n := p.counts().Cut; n < 10 {
		t.Errorf("%d packets are counted as cut, want at least 10", n)
	}
	if err := p.SetCut(false); err != nil {
		t.Fatal(err)
	}
	if got := p.send(11, 2); !slices.Equal(got, []int{11, 12}) {
		t.Errorf("arrived afterwards: %v", got)
	}
}
