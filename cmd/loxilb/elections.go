package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/announce/bfd"
	"loxilb/internal/announce/election"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/diagnose/doctor"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/netobj"
)

// bfdSessionKind is the kind of the statuses of BFD sessions.
const bfdSessionKind = "bfdsession"

const (
	jobTimeout      = time.Second // of asking the service manager if it restarts the daemon
	handOverTimeout = 2 * time.Second
	handOverPoll    = 5 * time.Millisecond
	releaseTime     = 100 * time.Millisecond // until the kernel has released VIPs whose role is stored
)

// newElections makes the reconciliation loop of BFD sessions, including the session of --ka.
func (p *daemon) newElections(o reconcile.Observers) {
	file, err := openLeaseFile(filepath.Join(p.config.StateDir, "lease"))
	if err != nil {
		p.log.Error("a MASTER that was killed might stay MASTER at its next start", "error", err)
	}
	p.restarting = sync.OnceValue(func() bool { return restartsSoon(p.log) })
	kernel := &kernelLeases{Leases: p.datapath.Leases, log: p.log}
	p.bfd = election.NewManager(leaseGuard{file, kernel.part()}, p.network.Do, p.restarting)
	p.roleLeases = reconcile.NewRoleLeases(p.state, kernel.part(), objects.Owner, p.rules.RolesChanged, o)
	p.elections = reconcile.NewElections(p.bfd, p.state, objects.Owner, p.rules.RolesChanged, p.announcer.Repeat, o)
}

// beginElections stores the session of --ka, and the roles with which this process starts.
func (p *daemon) beginElections() {
	p.api.CountAll(kinds.BFDName, p.readBFD)
	if ka := p.config.Keepalive; ka != nil {
		by := store.CommitOptions{Owner: objects.Owner, Author: store.Author{Who: "loxilb", Doing: "--ka"}}
		if _, _, err := p.state.CommitBy(by, func(tx *store.Tx) error { return p.state.BFD.Put(tx, *ka) }); err != nil {
			p.log.Error("the session of --ka cannot be stored", "error", err)
		}
	}
	p.bfd.SetCluster(p.heldReason() != "", false)
	p.elections.Begin()
	p.roleLeases.Begin()
}

// restartsSoon reports whether the service manager is restarting this daemon. It returns false
// without a service manager.
func restartsSoon(log *slog.Logger) bool {
	if os.Getenv("INVOCATION_ID") == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "list-jobs", "--no-legend", "--plain").Output()
	if err != nil {
		log.Warn("the service manager does not report whether it restarts this daemon", "error", err)
	}
	return restartJob(string(out))
}

// restartJob reports whether systemd's list of jobs has a restart of the daemon.
func restartJob(jobs string) bool {
	for line := range strings.Lines(jobs) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "loxilb.service" {
			return f[2] == "restart"
		}
	}
	return false
}

// untilHandedOver returns a context that ends after ctx, once another node owns the VIPs, unless
// this daemon restarts.
func (p *daemon) untilHandedOver(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		select {
		case <-later.Done():
			return
		case <-ctx.Done():
		}
		if !p.elections.Owning() || p.restarting() {
			return
		}
		p.bfd.Decline(true)
		for end := time.Now().Add(handOverTimeout); p.elections.Owning() && time.Now().Before(end); {
			time.Sleep(handOverPoll)
		}
		time.Sleep(releaseTime)
	}()
	return later, cancel
}

// readBFD returns a function that adds the current state of sessions and elections to a response.
func (p *daemon) readBFD() func(object, body any) {
	known := map[string]election.Status{}
	drained := p.state.Maintenance.OfThisNode(p.state.Snapshot()).Stage() == lb.Drained
	for _, s := range p.bfd.Statuses() {
		known[s.Key] = s
	}
	return func(object, body any) {
		session, out := object.(netobj.BFDSession), body.(*v1.BfdSession)
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
		if drained && s.Role == lb.RoleMaster { // without a peer; a drained node owns no VIPs
			out.Role, out.Reason = string(lb.RoleBackup), "the node is drained until: loxicmd node resume"
		}
		out.Sent, out.Received, out.Discarded, out.Failures = s.BFD.Sent, s.BFD.Received, s.BFD.Discarded, s.BFD.Failures
		if s.MakesClaims {
			out.PeerClaim = s.Claim.String()
		}
	}
}

// unprotected returns the sessions whose peer could not take over, and since when.
func (p *daemon) unprotected() (list []doctor.BFDSession) {
	for _, s := range p.bfd.Statuses() {
		switch {
		case s.BFD.State != bfd.Up:
			list = append(list, doctor.BFDSession{Key: s.Key, Why: cmp.Or(s.BFD.Reason, "the session is down"), Since: s.BFD.Since})
		case !s.MakesClaims:
			list = append(list, doctor.BFDSession{Key: s.Key, Why: "the peer makes no claims", NoClaims: true, Since: s.BFD.Since})
		}
	}
	return list
}

// unprotectedStatuses returns a failed status for each unprotected session, once its peer has had
// time to start.
func (p *daemon) unprotectedStatuses() (list []status.Status) {
	for _, s := range p.unprotected() {
		if time.Since(s.Since) > election.StartWait {
			list = append(list, status.Status{
				ID: status.ID{Kind: bfdSessionKind, Key: s.Key}, Desired: 1, Since: s.Since, Err: errors.New(s.Why), Attempts: 1,
			})
		}
	}
	return list
}

// electsWith reports whether a BFD session that elects roles has the address of a BGP neighbor.
func (p *daemon) electsWith(neighbor string) bool {
	for s := range p.state.BFD.All(p.state.Snapshot()) {
		if s.Remote.String() == neighbor {
			return true
		}
	}
	return false
}

// bfdCounts returns the BFD sessions' counters for metrics.
func (p *daemon) bfdCounts() (list []netobj.BFDCount) {
	for _, s := range p.bfd.Statuses() {
		list = append(list, netobj.BFDCount{Session: s.Key, Up: s.BFD.State == bfd.Up, Failures: s.BFD.Failures, Changes: s.Changes})
	}
	return list
}
