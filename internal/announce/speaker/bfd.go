package speaker

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// enableBFD starts BFD with a neighbor whose session is established. A BFD session that ends while
// there is no BGP session would have gobgp v4.8.0 end the next one (its issue 3561), so BFD runs
// only while there is one.
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

func (e *engine) setBFD(p *peer, enable bool) {
	update := e.apiPeer(p.config)
	update.Bfd = &api.BfdPeerConfig{
		Enabled:                  enable,
		DesiredMinimumTxInterval: uint32(p.config.BFD.Interval / time.Microsecond),
		RequiredMinimumReceive:   uint32(p.config.BFD.Interval / time.Microsecond),
		DetectionMultiplier:      uint32(p.config.BFD.Multiplier),
	}
	if _, err := e.server.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: update}); err != nil {
		e.log.Error("BFD of a BGP neighbor cannot be changed", "neighbor", p.key, "enable", enable, "error", err)
		return
	}
	p.hasBFD = enable
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
