package observe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
)

const (
	// recordPeriod is how often the ring is read. The packet path wakes nobody.
	recordPeriod = 100 * time.Millisecond
	// recordRingBytes is the size of the ring: some 500 copies, so 5,000 per second, for all rules
	// together.
	recordRingBytes = 1 << 18
)

// Recorder reads the copies of packets that firewall rules record (bpf/observe/record.h).
type Recorder struct{ shared *loader.Collection }

// NewRecorder reads nothing yet.
func NewRecorder(c *loader.Collection) *Recorder { return &Recorder{c} }

// RecordRules calls yield, often, with copies of the packets that firewall rules record, and with
// how many there should have been besides since it began, until ctx ends or yield returns false.
// The copies are valid until yield returns.
func (r *Recorder) RecordRules(ctx context.Context, yield func([]lb.PacketCopy, lb.Untold) bool) error {
	const number = uint32(bpf.TcRingRECORDER_RULES)
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "recorder", Type: ebpf.RingBuf, MaxEntries: recordRingBytes})
	if err != nil {
		return fmt.Errorf("make a ring of packets: %w", err)
	}
	defer ring.Close()
	reader, err := ringbuf.NewReader(ring)
	if err != nil {
		return fmt.Errorf("read a ring of packets: %w", err)
	}
	defer reader.Close()
	before, err := r.untold(number)
	if err != nil {
		return err
	}
	if err := r.shared.Maps.Watchers.Put(number, ring); err != nil {
		return fmt.Errorf("put a ring of packets in its place: %w", err)
	}
	defer r.shared.Maps.Watchers.Delete(number) //nolint:errcheck // nothing reads there any more
	tick := time.NewTicker(recordPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		copies, err := readCopies(reader)
		if err != nil {
			return fmt.Errorf("read packets: %w", err)
		}
		untold, err := r.untold(number)
		if err != nil {
			return err
		}
		if !yield(copies, lb.Untold{Sampled: untold.Sampled - before.Sampled, Lost: untold.Lost - before.Lost}) {
			return nil
		}
	}
}

// untold returns what was left out of a ring or lost.
func (r *Recorder) untold(number uint32) (sum lb.Untold, err error) {
	var each []bpf.TcUntold
	if err := r.shared.Maps.UntoldCounts.Lookup(number, &each); err != nil {
		return sum, fmt.Errorf("count packets that were not recorded: %w", err)
	}
	for _, n := range each {
		sum.Sampled += n.Sampled
		sum.Lost += n.Lost
	}
	return sum, nil
}

// readCopies reads available copies, a ring full at most, without waiting.
func readCopies(reader *ringbuf.Reader) (list []lb.PacketCopy, err error) {
	boot := sinceBoot()
	reader.SetDeadline(time.Unix(1, 0))
	for len(list) < recordRingBytes/int(unsafe.Sizeof(bpf.TcPacketRecord{})) {
		record, err := reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		c, err := decodeCopy(record.RawSample, boot)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// decodeCopy reads a copy, and puts its VLAN tag where the frame had it.
func decodeCopy(sample []byte, boot time.Time) (c lb.PacketCopy, err error) {
	r := &bpf.TcPacketRecord{}
	if len(sample) < int(unsafe.Sizeof(*r)) {
		return c, fmt.Errorf("a copy has %d bytes, not %d", len(sample), unsafe.Sizeof(*r))
	}
	copy((*[unsafe.Sizeof(*r)]byte)(unsafe.Pointer(r))[:], sample)
	c = lb.PacketCopy{
		Time: boot.Add(time.Duration(r.Time)).Round(0), Rule: r.Of, Action: actionOf(r.Verdict), Interface: int(r.Ifindex),
		Layer3: r.Flags&uint8(bpf.TcRecordFlagRECORD_LAYER3) != 0, Length: int(r.Length), Data: r.Data[:min(int(r.Captured), len(r.Data))],
	}
	if r.Flags&uint8(bpf.TcRecordFlagRECORD_TAGGED) == 0 || len(c.Data) < macs {
		return c, nil
	}
	tagged := make([]byte, 0, len(c.Data)+4)
	tagged = binary.NativeEndian.AppendUint16(append(tagged, c.Data[:macs]...), r.VlanProto)
	tagged = append(binary.BigEndian.AppendUint16(tagged, r.VlanTci), c.Data[macs:]...)
	c.Length, c.Data = c.Length+4, tagged
	return c, nil
}

// actionOf returns an action in the user's words.
func actionOf(action uint8) lb.RuleAction {
	switch bpf.TcRuleAction(action) {
	case bpf.TcRuleActionRULE_DROP:
		return lb.RuleDrop
	case bpf.TcRuleActionRULE_TRAP:
		return lb.RuleTrap
	case bpf.TcRuleActionRULE_REDIRECT:
		return lb.RuleRedirect
	case bpf.TcRuleActionRULE_SNAT, bpf.TcRuleActionRULE_SNAT_DEFAULT:
		return lb.RuleSNAT
	}
	return lb.RuleAllow
}
