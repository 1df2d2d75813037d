package metrics

import "time"

// storeFamilies are about the store that nodes share; none without --store.
func storeFamilies() []family {
	value := func(of func(v *view) float64) func(*view, *page) {
		return func(v *view, p *page) {
			if v.shared {
				p.add(of(v))
			}
		}
	}
	return []family{
		{
			Metric{"loxilb_shared_store_up", Gauge, nil, "1 if services and other shared objects are the current ones of --store, else 0.", Always},
			value(func(v *view) float64 { return boolValue(v.remote.Ready) }),
		},
		{
			Metric{"loxilb_shared_store_age_seconds", Gauge, nil, "Time since --store answered last; -1: it never has since the daemon started.", Always},
			value(func(v *view) float64 {
				if v.remote.Contact.IsZero() {
					return -1
				}
				return time.Since(v.remote.Contact).Seconds()
			}),
		},
		{
			Metric{"loxilb_shared_store_refused_entries", Gauge, nil, "Entries of --store that this node cannot read.", Always},
			value(func(v *view) float64 { return float64(len(v.remote.Problems)) }),
		},
	}
}
