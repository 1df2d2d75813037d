package speaker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Session is the session with a neighbor.
type Session struct {
	Key       string    // of the neighbor
	State     string    // of RFC 4271, section 8.2.2: "Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"
	Since     time.Time // when it was established, or ended
	LastError string    // why there is no session, or why the last one ended
	Sent      int       // prefixes
	Received  int       // prefixes, before policies
	BFD       string    // "Down", "Init", "Up", "AdminDown"; "": no BFD
}

// Established is the state of a session that exchanges routes.
const Established = "Established"

const idle = "Idle"

// status is the speaker's own state of a session, besides gobgp's.
type status struct {
	established bool
	since       time.Time
	lastError   string
}

// Sessions returns the sessions of all wanted neighbors, by key.
func (s *Speaker) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := make([]Session, 0, len(s.wanted.neighbors))
	running := map[string]*api.Peer{}
	if e := s.engine; e != nil {
		began := time.Now()
		count := s.wanted.policy.mayReject() && e.sent.due(began)
		e.list(count, func(p *api.Peer) { running[p.GetState().GetNeighborAddress()] = p })
		if count {
			e.sent.record(running, began)
		}
	}
	for k := range s.wanted.neighbors {
		x := Session{Key: k, State: idle, LastError: s.problem}
		if s.engine != nil {
			s.engine.describe(&x, running)
		}
		sessions = append(sessions, x)
	}
	slices.SortFunc(sessions, func(a, b Session) int { return strings.Compare(a.Key, b.Key) })
	return sessions
}

// describe fills in what gobgp knows of a session.
func (e *engine) describe(x *Session, running map[string]*api.Peer) {
	p := e.peers[x.Key]
	if p == nil {
		x.LastError = e.refused[x.Key]
		return
	}
	x.Since, x.LastError = p.status.since, p.status.lastError
	from := running[p.addr]
	x.State = stateWord(from.GetState().GetSessionState())
	for _, f := range from.GetAfiSafis() {
		x.Received += int(f.GetState().GetReceived())
	}
	if problem := e.problems.get(p.addr); problem != "" && x.State != Established && p.pause == nil {
		x.LastError = problem
	}
	if x.State == Established {
		x.Sent = e.countSent(p)
	}
	if p.config.BFD.Interval > 0 {
		x.BFD = bfdWord(from.GetState().GetBfdState().GetSessionState(), p.hasBFD)
	}
}

// countSent returns how many routes a neighbor has been announced.
func (e *engine) countSent(p *peer) (n int) {
	if e.policyOf.mayReject() {
		return e.sent.byNeighbor[p.addr]
	}
	for _, f := range families(p.config) {
		for prefix := range e.routes {
			if prefix.Addr().Is4() == (f == api.Family_AFI_IP) {
				n++
			}
		}
	}
	return n
}

func stateWord(s api.PeerState_SessionState) string {
	switch s {
	case api.PeerState_SESSION_STATE_CONNECT:
		return "Connect"
	case api.PeerState_SESSION_STATE_ACTIVE:
		return "Active"
	case api.PeerState_SESSION_STATE_OPENSENT:
		return "OpenSent"
	case api.PeerState_SESSION_STATE_OPENCONFIRM:
		return "OpenConfirm"
	case api.PeerState_SESSION_STATE_ESTABLISHED:
		return Established
	default:
		return idle
	}
}

// peerEvent is called by gobgp when a session changes.
func (e *engine) peerEvent(ev *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if ev.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	if e.owner.engine != e {
		return
	}
	for _, p := range e.peers {
		if p.addr == ev.Peer.State.NeighborAddress.String() {
			e.sessionChanged(p, &ev.Peer.State)
		}
	}
}

// sessionChanged records the state of a session and logs when it begins or ends.
func (e *engine) sessionChanged(p *peer, state *apiutil.PeerState) {
	established := state.SessionState == gobgp.BGP_FSM_ESTABLISHED
	if established == p.status.established {
		if state.SessionState == gobgp.BGP_FSM_IDLE && p.pause == nil {
			e.repairCollision(p)
		}
		return
	}
	p.status.established, p.status.since = established, time.Now()
	e.sent.stale = true
	if established {
		p.status.lastError = ""
		e.problems.take(p.addr)
		p.link = linkTo(p.addr, p.config.Multihop)
		e.log.Info("BGP session established", "neighbor", p.key)
		e.limitSending(p)
		e.enableBFD(p)
	} else {
		p.status.lastError = strings.Replace(state.DisconnectMessage, "notification-sent", "sent notification", 1) // the wording of gobgp's log
		if problem := e.problems.take(p.addr); problem != "" {
			p.status.lastError = problem
		}
		if state.AdminState == api.PeerState_ADMIN_STATE_PFX_CT {
			p.status.lastError = fmt.Sprintf("the neighbor announces more than %d prefixes; next attempt in %v", e.maxPrefixes(), prefixPause)
			e.tooManyPrefixes(p)
		}
		e.log.Warn("BGP session ended", "neighbor", p.key, "reason", p.status.lastError)
		e.disableBFD(p)
	}
	e.owner.notify()
}
