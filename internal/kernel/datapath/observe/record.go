package observe

import (
	"context"
	"time"
	"unsafe"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

const (
	// recordPeriod is the interval of reading the ring: the packet path does not wake readers.
	recordPeriod = 100 * time.Millisecond
	// recordRingBytes is the size of the ring for all rules: some 500 copies, which allows
	// 5,000 per second.
	recordRingBytes = 1 << 18
)

// Recorder reads the copies of packets that firewall rules record (bpf/observe/record.h).
type Recorder struct{ shared *loader.Collection }

// NewRecorder returns a recorder without a ring; RecordRules opens it.
func NewRecorder(c *loader.Collection) *Recorder { return &Recorder{c} }

// RecordRules calls yield frequently with copies of the packets that firewall rules record, and
// with the number lost so far, until ctx ends or yield returns false. The copies are valid until
// yield returns.
func (rec *Recorder) RecordRules(ctx context.Context, yield func([]report.PacketCopy, report.Omitted) bool) error {
	r, err := openRing(rec.shared, "recorder", recordRingBytes)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.attach(uint32(bpf.TcRingRECORDER_RULES)); err != nil {
		return err
	}
	defer r.detach() //nolint:errcheck // nothing reads there any more
	read := func() ([]report.PacketCopy, error) {
		return readRows(r, nil, recordRingBytes/int(unsafe.Sizeof(bpf.TcPacketRecord{})), copyOf)
	}
	return follow(ctx, r, recordPeriod, 0, read, yield)
}

// copyOf converts a copy to its description for users.
func copyOf(r *bpf.TcPacketRecord, boot time.Time) report.PacketCopy {
	c := report.PacketCopy{
		Time: boot.Add(time.Duration(r.Time)).Round(0), Rule: r.Of, Action: actionOf(r.Verdict), Interface: int(r.Ifindex),
		Layer3: r.Flags&uint8(bpf.TcRecordFlagRECORD_LAYER3) != 0, Length: int(r.Length), Data: r.Data[:min(int(r.Captured), len(r.Data))],
	}
	if r.Flags&uint8(bpf.TcRecordFlagRECORD_TAGGED) != 0 {
		c.Length -= len(c.Data)
		c.Data = withTag(c.Data, r.VlanProto, r.VlanTci)
		c.Length += len(c.Data)
	}
	return c
}

// actionOf returns the name of an action for users.
func actionOf(action uint8) policy.RuleAction {
	switch bpf.TcRuleAction(action) {
	case bpf.TcRuleActionRULE_DROP:
		return policy.RuleDrop
	case bpf.TcRuleActionRULE_TRAP:
		return policy.RuleTrap
	case bpf.TcRuleActionRULE_REDIRECT:
		return policy.RuleRedirect
	case bpf.TcRuleActionRULE_SNAT, bpf.TcRuleActionRULE_SNAT_DEFAULT:
		return policy.RuleSNAT
	}
	return policy.RuleAllow
}
