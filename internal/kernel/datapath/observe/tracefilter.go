package observe

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// filter returns a filter as the packet path reads it.
func (t *Tracer) filter(f *report.TraceFilter) (out bpf.TcTraceFilter, err error) {
	out = bpf.TcTraceFilter{
		On: 1, Ifindex: uint32(f.Interface), Port: bpf.Port(f.Port), Protocol: uint8(f.Protocol),
		VipPorts: [2]uint16{0, math.MaxUint16}, Verdicts: math.MaxUint8,
	}
	if f.Host.IsValid() {
		out.Host, out.HostMask = bpf.Addr(f.Host.Masked().Addr()), bpf.Mask(f.Host)
	}
	if f.VIP.IsValid() {
		out.Vip, out.VipMask = bpf.Addr(f.VIP), bpf.Mask(netip.PrefixFrom(f.VIP, f.VIP.BitLen()))
	}
	if f.VIPPorts != [2]uint16{} {
		out.VipPorts = f.VIPPorts
	}
	if f.Verdict != "" {
		out.Verdicts = 1 << slices.Index(report.TraceVerdicts(), f.Verdict)
	}
	if f.Reason != "" {
		out.Reason, err = t.reason(f.Reason)
	}
	return out, err
}

// reason returns the number of a reason for which packets are dropped.
func (t *Tracer) reason(name string) (uint8, error) {
	names := t.shared.DropReasons()
	for n, have := range names {
		if have == name {
			return uint8(n), nil
		}
	}
	return 0, lb.NewFieldError("reason", name, "is not a reason for drops", strings.Join(slices.Sorted(maps.Values(names)), ", "))
}

// largestGap returns the largest distance between sampled packets, so 1/share is the mean.
func largestGap(share float64) uint32 {
	if share <= 0 {
		return math.MaxUint32
	}
	return uint32(min((2/share-1)*(1<<bpf.TcTraceLimitTRACE_TURN_SHIFT), math.MaxUint32))
}

// sampleOf returns the highest 32-bit random number with which a packet counts for a share, among
// those sampled for the largest share.
func sampleOf(share, largest float64) uint32 {
	if share >= largest {
		return math.MaxUint32
	}
	return uint32(share / largest * math.MaxUint32)
}
