package observe

import (
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// traceDecoder converts traces to their descriptions for users.
type traceDecoder struct {
	reasons map[uint32]string // why packets are dropped
}

// describe converts a trace to its description for users.
func (in *traceDecoder) describe(t *bpf.TcPacketTrace, boot time.Time) report.PacketTrace {
	out := report.PacketTrace{
		Time: boot.Add(time.Duration(t.Time)).Round(0), Took: time.Duration(t.Took), Point: point(t.Point), In: int(t.In), Out: int(t.Out),
		Verdict: report.TraceVerdicts()[min(int(t.Verdict), len(report.TraceVerdicts())-1)], Reason: in.reasons[uint32(t.Reason)],
		Before: decodeView(&t.Before), After: decodeView(&t.After),
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

// decodeView converts a copy, with the VLAN tag that the kernel stores outside of the frame.
func decodeView(v *bpf.TcPacketView) report.PacketView {
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
