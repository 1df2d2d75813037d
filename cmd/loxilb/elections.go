package main

import (
	"context"
	"os/exec"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/announce/bfd"
	"loxilb/internal/announce/election"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/store"
	lbbfd "loxilb/internal/lb/bfd"
)

// shutdownPatience limits how long the service manager is asked whether the machine stops.
const shutdownPatience = time.Second

// newElections makes the loop of the BFD sessions with other nodes, with that of --ka.
func (p *daemon) newElections(o reconcile.Observers) {
	p.pairs = election.NewManager(noGuard{}, p.network.Do, restarts)
	p.elections = reconcile.NewElections(p.pairs, p.state, objects.Owner, func(map[string]bool) {}, o)
}

// beginElections stores the session of --ka, and the roles with which this process starts.
func (p *daemon) beginElections() {
	if ka := p.config.Keepalive; ka != nil {
		by := store.By{Owner: objects.Owner, Author: store.Author{Who: "loxilb", Doing: "--ka"}}
		if _, _, err := p.state.CommitBy(by, func(tx *store.Tx) error { return p.state.BFD.Put(tx, *ka) }); err != nil {
			p.log.Error("the session of --ka cannot be stored", "error", err)
		}
	}
	p.elections.Begin()
}

// restarts reports whether a process that was asked to end is likely to be followed by another one:
// its machine is not shutting down.
func restarts() bool {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // fails in most states, too
	return strings.TrimSpace(string(out)) != "stopping"
}

// readBFD returns a function that adds sessions and elections, as they are now, to what GET returns.
func (p *daemon) readBFD() func(object, body any) {
	known := map[string]election.Status{}
	for _, s := range p.pairs.Statuses() {
		known[s.Key] = s
	}
	return func(object, body any) {
		session, out := object.(lbbfd.Session), body.(*v1.BfdSession)
		out.SourceIP, out.SourceIp, out.Port = out.SourceIp, "", bfd.Port(session.Multihop) // as in the contract
		s, there := known[session.Key()]
		if !there {
			out.State = "BFD" + bfd.Down.String()
			return
		}
		if s.BFD.Local.IsValid() {
			out.SourceIP = s.BFD.Local.String()
		}
		out.State, out.Since, out.LastError = "BFD"+s.BFD.State.String(), s.BFD.Since.UTC().Format(time.RFC3339Nano), s.BFD.Reason
		out.Role, out.Reason = string(s.Role), s.Why
		out.Sent, out.Received, out.Discarded, out.Failures = s.BFD.Sent, s.BFD.Received, s.BFD.Discarded, s.BFD.Failures
		if s.Speaks {
			out.PeerClaim = s.Claim.String()
		}
	}
}

// noGuard is no guard: the kernel answers for VIPs while no process does.
type noGuard struct{}

func (noGuard) Renew(time.Time)  {}
func (noGuard) Lease() time.Time { return time.Time{} }
