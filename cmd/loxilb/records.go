package main

import (
	"context"
	"path/filepath"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/report"
	"loxilb/internal/telemetry/logs"
	"loxilb/internal/telemetry/pcapng"
)

const (
	recordRetry     = 10 * time.Second
	omittedInterval = time.Minute // between log lines about omitted records
)

// recordPackets writes the packets that firewall rules record, until ctx ends.
func (p *daemon) recordPackets(ctx context.Context) {
	w := &recordWriter{daemon: p, files: pcapng.RecordIn(filepath.Join(p.config.StateDir, "records"))}
	for ctx.Err() == nil {
		changed := p.state.Changed()
		if w.findRules(); len(w.rules) > 0 {
			w.run(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// recordWriter writes packets to files while rules record.
type recordWriter struct {
	*daemon
	files    *pcapng.Recording
	seen     uint64            // revision that rules were read from
	rules    map[uint64]string // keys of recording rules, by identity
	logged   report.Omitted    // omissions that were logged
	loggedAt time.Time
	err      error
}

// findRules finds the rules that record.
func (w *recordWriter) findRules() {
	now := w.state.Snapshot()
	if w.rules != nil && now.Revision() == w.seen {
		return
	}
	w.seen, w.rules = now.Revision(), map[uint64]string{}
	for r := range w.state.Rules.All(now) {
		if r.Record {
			w.rules[compile.RuleIdentity(&r)] = r.Key()
		}
	}
}

// run writes until no rule records any longer.
func (w *recordWriter) run(ctx context.Context) {
	w.logged, w.loggedAt, w.err = report.Omitted{}, time.Now(), nil
	err := w.datapath.RecordRules(ctx, func(list []report.PacketCopy, omitted report.Omitted) bool {
		w.reportOmitted(omitted)
		w.findRules()
		w.err = w.files.Write(w.named(list))
		return w.err == nil && len(w.rules) > 0
	})
	if err == nil {
		err = w.err
	}
	if err == nil {
		err = w.files.Close()
	}
	if err == nil {
		return
	}
	w.log.Error("packets that firewall rules record cannot be written; trying again", "error", err)
	monotime.Sleep(ctx, recordRetry)
}

// named returns the copies with the names of rules and interfaces. Copies of deleted rules have no
// names.
func (w *recordWriter) named(list []report.PacketCopy) []pcapng.Packet {
	if len(list) == 0 {
		return nil
	}
	devices := interfaceNames(w.network)
	out := make([]pcapng.Packet, len(list))
	for i, c := range list {
		out[i] = pcapng.Packet{PacketCopy: c, Rule: w.rules[c.Rule], Interface: devices[c.Interface]}
	}
	return out
}

// interfaceNames returns the names of this network namespace's interfaces by index.
func interfaceNames(network *netdev.Net) map[int]string {
	names := map[int]string{}
	for _, l := range network.Links() {
		names[l.Index] = l.Name
	}
	return names
}

// reportOmitted logs omitted records, once per recordNews.
func (w *recordWriter) reportOmitted(omitted report.Omitted) {
	if omitted == w.logged || time.Since(w.loggedAt) < omittedInterval {
		return
	}
	w.log.Warn("packets of firewall rules were not recorded", "beyond_rate", logs.Count(omitted.Sampled-w.logged.Sampled), "no_room", logs.Count(omitted.Lost-w.logged.Lost))
	w.logged, w.loggedAt = omitted, time.Now()
}
