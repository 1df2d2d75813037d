package traffic

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/policy"
)

// count adds the data path's counters to mirrors and policers.
func (a *API) count() {
	a.Objects.Count(kinds.Mirror().Name, func(object, body any) { a.countMirror(object.(policy.Mirror).Name, body.(*v1.Mirror)) })
	a.Objects.Count(kinds.Policer().Name, func(object, body any) {
		p := object.(policy.Policer)
		a.countPolicer(&p, body.(*v1.Policy))
	})
}

func (a *API) countMirror(name string, out *v1.Mirror) {
	stats := a.DataPath.MirrorStats(name)
	sync := 0
	if stats.Attached == 0 {
		sync = 1
	}
	out.Sync, out.Attached, out.Packets, out.Bytes, out.Lost = &sync, stats.Attached, stats.Packets, stats.Bytes, stats.Lost
}

// countPolicer also writes the bursts that are in force, which may be defaults.
func (a *API) countPolicer(p *policy.Policer, out *v1.Policy) {
	stats := a.DataPath.PolicerStats(p.Name)
	count := func(color int) *v1.PolicyCount {
		return &v1.PolicyCount{Packets: stats.Packets[color], Bytes: stats.Bytes[color]}
	}
	committed, excess := p.Bursts()
	out.PolicyInfo.CommittedBlkSize, out.PolicyInfo.ExcessBlkSize = int64(committed), int64(excess)
	out.Attached, out.Green, out.Yellow, out.Red = stats.Attached, count(0), count(1), count(2)
}
