package connections

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
)

// TestAnswerMeetsMove checks that an endpoint's reply that arrives while the client's entry is
// moved is retransmitted, and then recorded in both entries: otherwise the connection would stay
// half-open however long it is used.
func TestAnswerMeetsMove(t *testing.T) {
	t.Parallel()
	const ended = uint8(bpf.TcConnectionTraitCONN_ENDED) // the mark of an old copy of an entry
	d := open(t, loader.Settings{Connections: 100})
	client, vip, endpoint := netip.MustParseAddr("10.8.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1")
	d.serve(t, 6, netip.AddrPortFrom(vip, 80), endpoint)
	send := func(frame []byte) {
		t.Helper()
		if _, err := d.program(t).Run(&ebpf.RunOptions{Data: frame}); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(set, reset uint8) {
		t.Helper()
		err := dptest.ChangeConnections(d.shared.Conntrack, func(k bpf.TcConnectionKey, c *bpf.TcConnection) bool {
			if k.Saddr != bpf.Addr(client) {
				return false
			}
			c.Traits = c.Traits&^reset | set
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	replied := func() (n int) {
		t.Helper()
		for _, c := range dptest.Connections(t, d.shared) {
			if c.Flags&uint8(bpf.TcConnectionFlagCONN_REPLIED) != 0 {
				n++
			}
		}
		return n
	}
	answer := tcpFlags(dptest.TCPFrame(endpoint, client, 80, 4000), 0x12, 1)
	send(tcpFlags(dptest.TCPFrame(client, vip, 4000, 80), 0x02, 0))
	mark(ended, 0)
	send(answer)
	if n := replied(); n != 0 {
		t.Errorf("%d entries have recorded an answer that met the move", n)
	}
	if n := dropped(t, d.shared, bpf.TcDropReasonDROP_CONNECTION_RACE); n != 1 {
		t.Errorf("%d packets were dropped, want the answer, which its sender repeats", n)
	}
	mark(0, ended)
	send(answer)
	if n := replied(); n != 2 {
		t.Errorf("%d entries have recorded the repeated answer, want both", n)
	}
}

// tcpFlags returns the frame with these flags, and an acknowledgement.
func tcpFlags(frame []byte, flags byte, ack uint32) []byte {
	tcp := frame[14+20:]
	tcp[13] = flags
	binary.BigEndian.PutUint32(tcp[8:], ack)
	return frame
}

func dropped(t *testing.T, c *loader.Collection, reason bpf.TcDropReason) (sum uint64) {
	t.Helper()
	var each []uint64
	if err := c.Maps.Drops.Lookup(uint32(reason), &each); err != nil {
		t.Fatal(err)
	}
	for _, n := range each {
		sum += n
	}
	return sum
}

// TestSpareGivesUp checks that a process that ends does not wait forever for a table that cannot
// grow.
func TestSpareGivesUp(t *testing.T) {
	t.Parallel()
	d := open(t, loader.Settings{Connections: 60_000})
	buckets, err := d.shared.Conntrack.Buckets()
	if err != nil {
		t.Fatal(err)
	}
	last := int(buckets/uint32(bpf.TcTableLayoutBUCKETS_PER_GROUP)) - 1
	lock := func(on bool) {
		t.Helper()
		if err := dptest.HoldBuckets(d.shared.Conntrack, on, func(group, _ int, _ []bpf.TcConnectionKey) bool { return group == last }); err != nil {
			t.Fatal(err)
		}
	}
	lock(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.leaveSpare(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a table that cannot grow: %v", err)
	}
	lock(false)
	if err := d.leaveSpare(t.Context()); err != nil {
		t.Error(err)
	}
	if now, err := d.shared.Conntrack.Buckets(); err != nil || now < 2*buckets {
		t.Errorf("%d buckets of %d, %v", now, buckets, err)
	}
}
