package observe

import (
	"net/netip"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// describe converts an event to its description for users.
func (w *Watchers) describe(e *bpf.TcConnectionEvent, boot time.Time) report.ConnectionEvent {
	out := report.ConnectionEvent{
		Time:     boot.Add(time.Duration(e.Time)).Round(0),
		Act:      eventName(e.Kind),
		Protocol: lb.Protocol(e.Protocol),
		Client:   bpf.AddrPort(e.Client, e.ClientPort),
		VIP:      bpf.AddrPort(e.Vip, e.VipPort),
		Source:   bpf.AddrPort(e.Source, e.SourcePort),
		Endpoint: bpf.AddrPort(e.Peer, e.PeerPort),
		In:       report.Traffic{Packets: e.PacketsIn, Bytes: e.BytesIn},
		Out:      report.Traffic{Packets: e.PacketsOut, Bytes: e.BytesOut},
		OneOf:    int(e.Sample),
	}
	out.Reason, out.By = ending(e)
	if o, ok := w.tables.Owner(e.Endpoint); ok {
		out.Service = o.Service
		if e.Traits&uint8(bpf.TcConnectionTraitCONN_ONE_WAY) != 0 || out.Endpoint == out.VIP {
			out.Endpoint = netip.AddrPortFrom(o.Endpoint.Addr(), out.VIP.Port())
		}
	}
	return out
}

func eventName(kind uint8) string {
	switch bpf.TcConnectionEventKind(kind) {
	case bpf.TcConnectionEventKindEVENT_OPENED:
		return "opened"
	case bpf.TcConnectionEventKindEVENT_ASSURED:
		return "assured"
	case bpf.TcConnectionEventKindEVENT_CLOSING:
		return "closing"
	default:
		return "ended"
	}
}

// ending returns why a connection ended, and which side closed it.
func ending(e *bpf.TcConnectionEvent) (reason, by string) {
	has := func(f bpf.TcConnectionFlag) bool { return e.Flags&uint8(f) != 0 }
	trait := func(t bpf.TcConnectionTrait) bool { return e.Traits&uint8(t) != 0 }
	client, endpoint := has(bpf.TcConnectionFlagCONN_FIN_CLIENT), has(bpf.TcConnectionFlagCONN_FIN_ENDPOINT)
	oneWay := trait(bpf.TcConnectionTraitCONN_ONE_WAY)
	switch {
	case client && endpoint:
		by = "both"
	case client:
		by = "client"
	case endpoint:
		by = "endpoint"
	}
	if bpf.TcConnectionEventKind(e.Kind) != bpf.TcConnectionEventKindEVENT_ENDED {
		return "", by
	}
	sentRST := uint8(bpf.TcConnectionTraitCONN_SENT_RST)
	switch {
	case has(bpf.TcConnectionFlagCONN_RESET) && lb.Protocol(e.Protocol) == lb.SCTP:
		return "reset", "" // the sender of ABORT is not recorded
	case has(bpf.TcConnectionFlagCONN_RESET) && e.Traits&e.ReplyTraits&sentRST != 0:
		return "reset", "both" // a RST of each side was seen, if only because the load balancer has sent both
	case has(bpf.TcConnectionFlagCONN_RESET) && (oneWay || trait(bpf.TcConnectionTraitCONN_SENT_RST)):
		return "reset", "client"
	case has(bpf.TcConnectionFlagCONN_RESET):
		return "reset", "endpoint"
	case client && (endpoint || oneWay):
		return "closed", by
	case bpf.TcConnectionEventCause(e.Cause) == bpf.TcConnectionEventCauseCAUSE_REMOVED:
		return "removed", by
	case bpf.TcConnectionEventCause(e.Cause) == bpf.TcConnectionEventCauseCAUSE_REPLACED:
		return "replaced", by
	default:
		return "silent", by
	}
}
