package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/logs"
)

const (
	dropPeriod = time.Second
	// maxNamed bounds the services or endpoints that the log names for one reason.
	maxNamed = 5
	// namedTime is the time without drops after which other services may be named instead.
	namedTime = 10 * time.Minute
)

// actionableDrops returns the reasons that the administrator can do something about. Other drops
// are configured or caused by senders, and are logged for debugging only.
func actionableDrops() []string {
	return []string{
		"no-endpoint", "conntrack-full", "no-route", "route-unreachable", forwardingOff, "route-encap", "tuple-in-use",
		"snat-ports-exhausted", "dsr-routed", "ipsec-policy",
	}
}

// dropWatch warns of dropped packets, and names their services, endpoints or interfaces. The log
// summarizes repetitions.
type dropWatch struct {
	drops    func() (map[string]uint64, error)
	refusals func(yield func(tables.Refusal)) error
	problems func() []netdev.KnownProblem
	log      *slog.Logger

	before  map[string]uint64    // dropped packets, by reason
	refused map[refusalOf]uint64 // packets that services have refused
	unnamed map[string]uint64    // dropped packets that no service has counted so far
	named   namedServices
}

// refusalOf identifies a counter of refused packets.
type refusalOf struct{ service, reason string }

// drops makes the watch of dropped packets.
func (p *daemon) drops() *dropWatch {
	return &dropWatch{drops: p.datapath.Drops, refusals: p.datapath.EachRefusal, problems: p.network.Problems, log: p.log}
}

// run looks for dropped packets until ctx ends.
func (w *dropWatch) run(ctx context.Context) {
	w.begin()
	tick := time.NewTicker(dropPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			w.check()
			return
		case <-tick.C:
			w.check()
		}
	}
}

// begin records the current counters.
func (w *dropWatch) begin() {
	w.unnamed, w.named = map[string]uint64{}, namedServices{}
	w.before, _ = w.drops() // the next check reads them again, and logs the error
	w.newRefusals()
}

// check logs packets dropped since the last check.
func (w *dropWatch) check() {
	now, err := w.drops()
	if err != nil {
		w.log.Error("drops cannot be read", "error", err)
		return
	}
	var refusals map[string][]tables.Refusal // read if any packet was dropped that a service may have refused
	for _, reason := range actionableDrops() {
		n := now[reason] - w.before[reason]
		if n == 0 && w.unnamed[reason] == 0 {
			continue
		}
		if refusals == nil {
			refusals = w.newRefusals()
		}
		w.report(reason, n, refusals[reason])
	}
	for reason, n := range now {
		if n -= w.before[reason]; n > 0 && !slices.Contains(actionableDrops(), reason) {
			w.log.Debug("packets dropped", "reason", reason, "packets", n)
		}
	}
	w.before = now
}

// newRefusals returns the packets that services refused since the last call, by reason.
func (w *dropWatch) newRefusals() map[string][]tables.Refusal {
	out, now := map[string][]tables.Refusal{}, make(map[refusalOf]uint64, len(w.refused))
	err := w.refusals(func(r tables.Refusal) {
		of := refusalOf{r.Service, r.Reason}
		now[of] = r.Packets
		if before := w.refused[of]; r.Packets > before {
			r.Packets -= before
			out[r.Reason] = append(out[r.Reason], r)
		}
	})
	if err != nil {
		w.log.Error("drops cannot be read", "error", err)
		return out
	}
	w.refused = now
	return out
}

// report logs packets that were dropped for a reason.
func (w *dropWatch) report(reason string, packets uint64, refusals []tables.Refusal) {
	if len(refusals) > 0 {
		w.unnamed[reason] = 0
		w.reportServices(reason, refusals)
		return
	}
	log, named := w.log, false
	if reason == forwardingOff {
		log, named = log.With("interface", "lo"), true
	} else if endpoints := w.endpoints(); endpoints != "" && slices.Contains(routeDrops(), reason) {
		log, named = log.With("endpoint", endpoints), true
	}
	if !named && w.unnamed[reason] == 0 {
		w.unnamed[reason] = packets // the next check may know their service, or the problem of their endpoint
		return
	}
	packets += w.unnamed[reason]
	w.unnamed[reason] = 0
	warnDropped(log, reason, packets)
}

const forwardingOff = "forwarding-off"

// routeDrops returns the reasons that concern the route to an endpoint.
func routeDrops() []string {
	return []string{"no-route", "route-unreachable", "route-encap", "dsr-routed"}
}

func warnDropped(log *slog.Logger, reason string, packets uint64) {
	why, _ := report.DropReasonOf(reason)
	log.Warn("packets dropped", "reason", reason, "packets", logs.Count(packets), "hint", why.Remedy)
}

// reportServices logs refusals of services. The first services get a line each, also in later
// checks; others are only counted.
func (w *dropWatch) reportServices(reason string, refusals []tables.Refusal) {
	slices.SortFunc(refusals, func(a, b tables.Refusal) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Service, b.Service))
	})
	var others int
	var packets uint64
	for _, r := range refusals {
		if !w.named.admit(refusalOf{r.Service, reason}) {
			others++
			packets += r.Packets
			continue
		}
		log := w.log.With("service", r.Service)
		if r.Name != "" {
			log = log.With("name", r.Name)
		}
		warnDropped(log, reason, r.Packets)
	}
	if others > 0 {
		warnDropped(w.log.With("services", fmt.Sprintf("%d more", others)), reason, packets)
	}
}

// endpoints names endpoints that are known to be unreachable.
func (w *dropWatch) endpoints() string {
	var list []string
	for _, p := range w.problems() {
		if p.Kind == netdev.NeighbourKind {
			list = append(list, p.Key)
		}
	}
	slices.Sort(list)
	if more := len(list) - maxNamed; more > 0 {
		list = append(list[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// namedServices are the services with their own log lines, with the time of the last line.
type namedServices map[refusalOf]time.Time

// admit reports whether a service has its own log lines for a reason. Only a few services per
// reason have them at a time.
func (n namedServices) admit(of refusalOf) bool {
	now := time.Now()
	maps.DeleteFunc(n, func(_ refusalOf, last time.Time) bool { return now.Sub(last) > namedTime })
	if _, has := n[of]; !has {
		var same int
		for other := range n {
			if other.reason == of.reason {
				same++
			}
		}
		if same >= maxNamed {
			return false
		}
	}
	n[of] = now
	return true
}
