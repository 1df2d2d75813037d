package connections

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// EndConnections ends matching connections, at most rate per second, and counts them. TCP
// connections with known sequence numbers end by RSTs to both ends, SCTP associations with known
// verification tags by ABORTs. Others end silently. Closed ones are skipped. If ctx ends first, it
// returns the position to continue from; 0 is the beginning.
func (t *Table) EndConnections(ctx context.Context, from, rate int, matches func(*report.Connection) bool) (done report.Ended, err error) {
	start := time.Now()
	err = t.shared.Conntrack.ScanAll(func() (err error) {
		next, listed := t.shared.Conntrack.EachFrom(ctx, from, func(k bpf.TcConnectionKey, r bpf.TcConnection) bool {
			c, ok := t.connection(k, r)
			if !ok || c.Reply || isClosed(r.Flags) || !matches(&c) {
				return true
			}
			if err = t.end(k, r, &done); err != nil {
				return false
			}
			due := time.Duration(done.Reset+done.Silent) * time.Second / time.Duration(rate)
			if !monotime.Sleep(ctx, due-time.Since(start)) {
				err = ctx.Err()
			}
			return err == nil
		})
		from, done.Next = 0, next // a repetition starts at the beginning
		return cmp.Or(err, listed)
	})
	return done, err
}

// end ends the connection of a client's entry.
func (t *Table) end(k bpf.TcConnectionKey, r bpf.TcConnection, done *report.Ended) error {
	if k.Protocol == uint8(lb.TCP) || k.Protocol == uint8(lb.SCTP) {
		return t.endBoth(foundEnd{k, replyKey(k, &r), r.Endpoint, wordOf(&r)}, done)
	}
	return t.endSilently(k, r.Endpoint, wordOf(&r), done)
}

// endBoth ends a connection of TCP or SCTP: both ends get a RST or ABORT, if their numbers or tags
// are known.
func (t *Table) endBoth(e foundEnd, done *report.Ended) error {
	sent, err := t.resetBoth(&e, generation)
	if err != nil {
		return err
	}
	if sent {
		done.Reset++
		return nil
	}
	return t.endSilently(e.client, e.endpoint, e.word, done)
}

// ResetCopied sends RSTs to both ends of the connection of a copy.
func (t *Table) ResetCopied(r *bpf.TcConnectionCopy) error {
	client := bpf.TcConnectionKey{Saddr: r.Client, Daddr: r.Vip, Sport: r.ClientPort, Dport: r.VipPort, Protocol: r.Protocol}
	reply := bpf.TcConnectionKey{Saddr: r.Endpoint, Daddr: r.Source, Sport: r.EndpointPort, Dport: r.SourcePort, Protocol: r.Protocol}
	_, err := t.resetBoth(&foundEnd{client, reply, r.Id, uint32(r.Generation) << generationShift}, generation)
	return err
}

// endSilently ends the connection of a client's entry, if it still has this endpoint and word.
func (t *Table) endSilently(k bpf.TcConnectionKey, endpoint, word uint32, done *report.Ended) error {
	key := (*[unsafe.Sizeof(k)]byte)(unsafe.Pointer(&k))[:]
	there, err := t.programs.run(endSilently, &ebpf.RunOptions{
		Data: append(make([]byte, etherBytes), key...), Context: endTarget(endpoint, word, generation),
	})
	if err != nil {
		return fmt.Errorf("end a connection: %w", err)
	}
	done.Silent += int(there)
	return nil
}

// replyKey returns the key of the other direction's entry, for TCP and SCTP.
func replyKey(k bpf.TcConnectionKey, r *bpf.TcConnection) bpf.TcConnectionKey {
	k.Saddr, k.Daddr, k.Sport, k.Dport = r.Daddr, r.Saddr, r.Dport, r.Sport
	return k
}

// isClosed is connection_is_closed() of the packet path.
func isClosed(flags uint8) bool {
	const both = uint8(bpf.TcConnectionFlagCONN_FIN_CLIENT_ACKED | bpf.TcConnectionFlagCONN_FIN_ENDPOINT_ACKED)
	return flags&uint8(bpf.TcConnectionFlagCONN_RESET) != 0 || flags&both == both
}
