package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// traceInbox reads a ring.
type traceInbox struct {
	reader  *ringbuf.Reader
	reasons map[uint32]string // why packets are dropped
}

// read reads available traces, a batch at most, without waiting.
func (in *traceInbox) read() (list []lb.PacketTrace, err error) {
	boot := sinceBoot()
	in.reader.SetDeadline(time.Unix(1, 0))
	for len(list) < traceBatch {
		record, err := in.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		t := &bpf.TcPacketTrace{}
		if len(record.RawSample) < int(unsafe.Sizeof(*t)) {
			return nil, fmt.Errorf("a packet has %d bytes, not %d", len(record.RawSample), unsafe.Sizeof(*t))
		}
		copy((*[unsafe.Sizeof(*t)]byte)(unsafe.Pointer(t))[:], record.RawSample)
		list = append(list, in.describe(t, boot))
	}
	return list, nil
}

// describe converts a trace to the user's terms.
func (in *traceInbox) describe(t *bpf.TcPacketTrace, boot time.Time) lb.PacketTrace {
	out := lb.PacketTrace{
		Time: boot.Add(time.Duration(t.Time)).Round(0), Took: time.Duration(t.Took), Point: point(t.Point), In: int(t.In), Out: int(t.Out),
		Verdict: lb.TraceVerdicts()[min(int(t.Verdict), len(lb.TraceVerdicts())-1)], Reason: in.reasons[uint32(t.Reason)],
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
func view(v *bpf.TcPacketView) lb.PacketView {
	out := lb.PacketView{
		Layer3: v.Flags&uint8(bpf.TcTraceFlagTRACE_LAYER3) != 0, Length: int(v.Length), Segment: int(v.Segment), Data: v.Data[:min(int(v.Captured), len(v.Data))],
	}
	if v.Flags&uint8(bpf.TcTraceFlagTRACE_TAGGED) == 0 || len(out.Data) < macs {
		return out
	}
	tagged := make([]byte, 0, len(out.Data)+4)
	tagged = binary.NativeEndian.AppendUint16(append(tagged, out.Data[:macs]...), v.VlanProto)
	tagged = append(binary.BigEndian.AppendUint16(tagged, v.VlanTci), out.Data[macs:]...)
	out.Length, out.Data = out.Length+4, tagged
	return out
}
