package observe

import (
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// traceInbox describes traces.
type traceInbox struct {
	reasons map[uint32]string // why packets are dropped
}

// describe converts a trace to the user's terms.
func (in *traceInbox) describe(t *bpf.TcPacketTrace, boot time.Time) report.PacketTrace {
	out := report.PacketTrace{
		Time: boot.Add(time.Duration(t.Time)).Round(0), Took: time.Duration(t.Took), Point: point(t.Point), In: int(t.In), Out: int(t.Out),
		Verdict: report.TraceVerdicts()[min(int(t.Verdict), len(report.TraceVerdicts())-1)], Reason: in.reasons[uint32(t.Reason)],
		Before: view(&t.Before), After: view(&t.After),
	}
	if t.Pass == uint8(bpf.TcPassReasonPASS_EXTENSION_CHAIN) {
		out.Reason = "extension-chain"
	}
	return out
}

func point(p uint8) string {
	switch bpf.TcTracePoint(p) {
	case bpf.TcTracePointTRACE_EGRESS:
		return "egress"
	case bpf.TcTracePointTRACE_XDP:
		return "xdp"
	default:
		return "ingress"
	}
}

// view reads a copy, and puts its VLAN tag where the frame had it.
func view(v *bpf.TcPacketView) report.PacketView {
	out := report.PacketView{
		Layer3: v.Flags&uint8(bpf.TcTraceFlagTRACE_LAYER3) != 0, Length: int(v.Length), Segment: int(v.Segment), Data: v.Data[:min(int(v.Captured), len(v.Data))],
	}
	if v.Flags&uint8(bpf.TcTraceFlagTRACE_TAGGED) != 0 {
		out.Length -= len(out.Data)
		out.Data = withTag(out.Data, v.VlanProto, v.VlanTci)
		out.Length += len(out.Data)
	}
	return out
}
