package speaker

import (
	"context"
	"fmt"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

const (
	bfdTime = time.Second // limits how long a change of BFD may take
	// bfdPause is enough for a removed BFD session to finish. gobgp would wait for it forever if
	// gobgp stopped meanwhile.
	bfdPause = 5 * time.Millisecond
)

// enableBFD starts BFD with a neighbor whose session is established. If a BFD session ends without
// a BGP session, gobgp v4.8.0 ends the next BGP session (its issue 3561), so BFD runs only during a
// BGP session.
func (e *engine) enableBFD(p *peer) {
	if p.config.BFD.Interval > 0 && !p.hasBFD {
		e.setBFD(p, true)
	}
}

func (e *engine) disableBFD(p *peer) {
	if p.hasBFD {
		e.setBFD(p, false)
	}
}

// setBFD changes BFD, and waits until it has taken effect: gobgp hangs if several changes meet a
// BFD session that ends.
func (e *engine) setBFD(p *peer, enable bool) {
	p.hasBFD = enable
	if err := e.update(p); err != nil {
		e.logUnchanged(p, fmt.Errorf("change BFD: %w", err))
		p.hasBFD = !enable
		return
	}
	for deadline := time.Now().Add(bfdTime); time.Now().Before(deadline) && e.runsBFD(p) != enable; {
		time.Sleep(time.Millisecond)
	}
}

// runsBFD reports whether gobgp has a BFD session with a neighbor.
func (e *engine) runsBFD(p *peer) (runs bool) {
	e.server.ListBfdPeer(context.Background(), func(addr string, _ *api.BfdPeerState) {
		runs = runs || addr == p.addr
	})
	return runs
}

func apiBFD(p *peer) *api.BfdPeerConfig {
	interval := uint32(p.config.BFD.Interval / time.Microsecond)
	return &api.BfdPeerConfig{
		Enabled:                  p.hasBFD,
		DesiredMinimumTxInterval: interval,
		RequiredMinimumReceive:   interval,
		DetectionMultiplier:      uint32(p.config.BFD.Multiplier),
	}
}

func bfdWord(s api.BfdSessionState, runs bool) string {
	switch {
	case !runs:
		return "Down"
	case s == api.BfdSessionState_BFD_SESSION_STATE_UP:
		return "Up"
	case s == api.BfdSessionState_BFD_SESSION_STATE_INIT:
		return "Init"
	case s == api.BfdSessionState_BFD_SESSION_STATE_ADMIN_DOWN:
		return "AdminDown"
	default:
		return "Down"
	}
}
