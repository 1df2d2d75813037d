package model

import (
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
)

// drop refuses a packet in silence, and counts that.
func (s *service) drop(reason string) Verdict {
	countRefusal(&s.refusals, reason)
	return drop(reason)
}

// refuse returns the service's verdict on a packet that it cannot use. A RST is never answered.
func (s *service) refuse(p *pkt.Packet, reason string) Verdict {
	if reason != report.NoConnection.String() || p.Num(pkt.Flags)&pkt.FlagRST == 0 {
		countRefusal(&s.refusals, reason)
	}
	switch s.Refuse {
	case lb.RefuseDrop:
		return drop(reason)
	case lb.RefusePass:
		return Verdict{Name: "pass"}
	}
	return answered(p, reason)
}

func countRefusal(r *report.Refusals, reason string) {
	for one := range report.RefusalReasons {
		if one.String() == reason {
			r[one]++
		}
	}
}
