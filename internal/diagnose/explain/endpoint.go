package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"loxilb/internal/diagnose/rates"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// maxScan is the number of slots up to which lc compares all slots: SELECT_SCAN of
// bpf/service/select.h.
const maxScan = 64

// addEndpoint adds the endpoint that gets the packet, the reason, and the ineligible endpoints.
func (i *inquiry) addEndpoint(r *dryrun.Result, s *lb.Service) {
	a, o := &i.answer, r.Opening
	if r.Entry != nil {
		a.Endpoint = r.Entry.Endpoint
	}
	if o == nil {
		if r.Entry != nil && !r.Entry.Reply {
			a.add("endpoint", OK, "%s, chosen when the connection opened%s", r.Entry.Endpoint, i.ineligibleNote(s, r.Entry.Endpoint))
		}
		return
	}
	eligible, ineligible := i.eligible(s)
	states, endpoints := i.states(s)
	switch {
	case o.Outwards:
		return
	case !o.Chosen:
		if r.Reason == "no-endpoint" || o.Slots == 0 {
			a.add("endpoint", Failed, "no endpoint is available%s", listed(ineligible))
		}
		return
	case r.Entry == nil:
		a.Endpoint = o.Endpoint
	}
	at := o.Endpoint
	if r.Entry != nil {
		at = r.Entry.Endpoint
	}
	switch {
	case i.isDataConnection(s):
		a.add("endpoint", OK, "%s: it has the client's control connection of FTP, which has announced this port%s", at, i.ineligibleNote(s, at))
		i.addLimits(s)
		return
	case o.Algorithm == bpf.TcAlgorithmALGORITHM_QUIC && o.Held:
		a.add("endpoint", OK, "%s: the server ID in the connection ID is that of this endpoint%s", at, i.ineligibleNote(s, at))
	default:
		a.add(
			"endpoint", OK, "%s, one of %d available%s: %s (slot %d of %d)%s",
			at, len(eligible), ofAll(len(eligible)+len(ineligible)), i.choiceReason(o, at), o.Place+1, o.Slots, retryNote(o, at),
		)
	}
	for n, e := range s.Endpoints {
		if e.AddrPort() == at && isDown(states.Endpoints[n]) {
			a.add("endpoint", Warning, "%s is %s, but still receives connections: %s", at, states.Endpoints[n], i.downReason(s, e, endpoints[n]))
		}
	}
	for _, why := range ineligible {
		a.add("endpoint", Warning, "%s", why)
	}
	i.addLimits(s)
}

// isDataConnection reports whether the packet opens a data connection of FTP. These services have
// one port, so another one was announced.
func (i *inquiry) isDataConnection(s *lb.Service) bool {
	_, to := i.ends()
	return s.Helper == lb.HelperFTP && to.Port() != s.Port
}

func ofAll(n int) string { return fmt.Sprintf(", of %d", n) }

func listed(why []string) string {
	if len(why) == 0 {
		return ": the service has none"
	}
	return ": " + strings.Join(why, "; ")
}

// retryNote describes an endpoint that was tried without success.
func retryNote(o *dryrun.Opening, at netip.AddrPort) string {
	if o.Endpoint == at {
		return ""
	}
	return fmt.Sprintf("; %s was skipped: it already has a connection with this client address and port", o.Endpoint)
}

// choiceReason returns how the endpoint was chosen.
func (i *inquiry) choiceReason(o *dryrun.Opening, at netip.AddrPort) string {
	switch o.Algorithm {
	case bpf.TcAlgorithmALGORITHM_HASH:
		return "by the hash of addresses and ports, while the endpoints stay the same"
	case bpf.TcAlgorithmALGORITHM_N3:
		if i.TEID != 0 {
			return "by the hash of the source port of the tunnel"
		}
		return "by the hash of the source port; a packet in a GTP-U tunnel gets the port of its tunnel first (--teid)"
	case bpf.TcAlgorithmALGORITHM_QUIC:
		if len(i.ConnectionID) > 0 {
			return "by the hash of addresses and ports: the connection ID has no configuration of the service, or names no endpoint that serves"
		}
		return "by the hash of addresses and ports, as without a connection ID (--connection-id)"
	case bpf.TcAlgorithmALGORITHM_PERSIST:
		if o.Held {
			return "it has the client's last connection"
		}
		return "by the hash of the address of a new client"
	case bpf.TcAlgorithmALGORITHM_LC:
		if o.Slots > maxScan {
			return "the less loaded of two random endpoints: the next packet might get another one"
		}
		return "it has the fewest connections relative to its weight"
	case bpf.TcAlgorithmALGORITHM_RANDOM:
		return "chosen at random: the next packet might get another one"
	case bpf.TcAlgorithmALGORITHM_PRIORITY:
		return "by weighted round robin, the next is " + at.String()
	}
	return "by round robin, the next is " + at.String()
}

// noEvidence describes a state that no probe explains.
func noEvidence(state report.HealthState) string {
	if state == report.HealthUnknown {
		return "no probe has been answered yet"
	}
	return "it is " + state.String()
}

// evidence returns a probe's result.
func (i *inquiry) evidence(e lb.Endpoint, state report.HealthState) (text string) {
	text = noEvidence(state)
	i.Health.EndpointsNamed([]string{e.Addr.String()}, func(h *report.EndpointHealth) bool {
		if h.Addr != e.Addr || h.Probe.Port != 0 && h.Probe.Port != e.Port || h.State == report.HealthUp {
			return true
		}
		switch {
		case h.AgentDown:
			text = "it was ejected (loxicmd get endpoint): its state is red"
		case h.Evidence != "":
			text = fmt.Sprintf("it is %s: %s", h.State, h.Evidence)
		}
		return false
	})
	return text
}

// ineligibleNote describes an endpoint that has the connection but gets no new ones.
func (i *inquiry) ineligibleNote(s *lb.Service, at netip.AddrPort) string {
	_, endpoints := i.states(s)
	for n, e := range s.Endpoints {
		switch {
		case e.AddrPort() != at:
			continue
		case !endpoints[n].Available:
			return "; it receives no new connections: " + i.ineligibleReason(s, n, endpoints[n])
		}
		return ""
	}
	return "; it is no longer part of the service"
}

// addLimits adds the limits of the service.
func (i *inquiry) addLimits(s *lb.Service) {
	if !s.Limited() {
		return
	}
	var of []string
	for _, l := range []struct {
		n           uint32
		what, scope string
	}{
		{s.MaxRate, "new connection", " per second"}, {s.MaxConnections, "open connection", ""},
		{s.ClientRate, "new connection", " per second per client"}, {s.ClientConnections, "open connection", " per client"},
	} {
		if l.n > 0 {
			of = append(of, plural(int(l.n), l.what)+l.scope)
		}
	}
	i.answer.add("limit", OK, "currently within its limits: at most %s", strings.Join(of, ", "))
}

// isEndpoint reports whether any service has an endpoint at an address, and a port if given.
func (i *inquiry) isEndpoint(at netip.AddrPort) bool {
	for s := range i.services.All() {
		for _, e := range s.Endpoints {
			if isAt(&e, at) {
				return true
			}
		}
	}
	return false
}

func isAt(e *lb.Endpoint, at netip.AddrPort) bool {
	return e.Addr == at.Addr() && (at.Port() == 0 || at.Port() == e.Port || at.Port() > e.Port && at.Port() <= e.PortMax)
}

// addAnswers adds the counts of handshakes with the endpoint. They show a return path that bypasses
// this machine.
func (i *inquiry) addAnswers(r *dryrun.Result, s *lb.Service) {
	if s.Protocol != lb.TCP || s.Mode == lb.ModeDSR { // others are not counted
		return
	}
	if isPathReason(r.Reason) { // SYNs do not leave this machine
		return
	}
	stats, known := i.DataPath.ServiceStats(s.Key)
	for n, e := range s.Endpoints {
		if !known || n >= len(stats.Endpoints) || !isAt(&e, r.Entry.Endpoint) {
			continue
		}
		h := &stats.Endpoints[n].Handshakes
		answered := h.AllAnswered()
		if h.Opened == 0 {
			i.answer.add("answers", OK, "no connection has been opened to %s so far", e.AddrPort())
			return
		}
		lost := int64(h.Opened) - int64(answered) - int64(h.Refused) - int64(h.Unreachable)
		text := fmt.Sprintf("of %s to %s, %d were answered, %d refused by a RST, %d reported as undeliverable", plural(int(h.Opened), "SYN"), e.AddrPort(), answered, h.Refused, h.Unreachable)
		if lost > 0 {
			text += fmt.Sprintf(", and %d not answered at all", lost)
		}
		few := h.Opened / 10
		bad := h.Refused > few || h.Unreachable > few || lost > 2 && uint64(lost) > few
		asymmetric, recent := i.Health.HasAsymmetricReply(e.AddrPort()), i.recentHandshakes(s, n)
		switch {
		case asymmetric, recent.Failed >= significantStreak, bad && recent.Made < significantStreak:
			i.answer.add("answers", Warning, "%s: %s", text, i.likelyCause(r, s, e, h, lost, asymmetric))
		case bad:
			i.answer.add("answers", OK, "%s; of the last %d none failed", text, recent.Made)
		default:
			i.answer.add("answers", OK, "%s", text)
		}
		return
	}
}

// significantStreak is the number of recent handshakes that outweigh all earlier ones.
const significantStreak = 3

// recentHandshakes returns the recent handshakes with the n-th endpoint.
func (i *inquiry) recentHandshakes(s *lb.Service, n int) rates.Recent {
	return i.Loads.Endpoints(s.Key, len(s.Endpoints))[n].Recent
}

// likelyCause returns the likely cause of unanswered handshakes. Events at the endpoint cannot be
// seen from here.
func (i *inquiry) likelyCause(r *dryrun.Result, s *lb.Service, e lb.Endpoint, h *report.Handshakes, lost int64, asymmetric bool) string {
	switch {
	case asymmetric:
		return i.asymmetryHint("connections of this machine are answered, but recently none of any client")
	case h.Refused > uint64(max(lost, 0)):
		return fmt.Sprintf("nothing listens on port %d there, or a firewall rejects it", e.Port)
	case h.Unreachable > uint64(max(lost, 0)):
		return "a router on the path or the endpoint's firewall sends ICMP errors: find it with tcpdump icmp"
	}
	if i.Health.EndpointVerdict(s, e).Probe == report.HealthUp && !r.Entry.SourceIsOurs {
		return i.asymmetryHint("probes from this machine's own address are answered")
	}
	return "the endpoint is stopped, a firewall drops them, or its answers bypass this machine: run tcpdump on the endpoint"
}

// asymmetryHint explains why answers to clients may bypass this machine although the endpoint
// answers it.
func (i *inquiry) asymmetryHint(yet string) string {
	return fmt.Sprintf("%s, so the endpoint's answers to %s bypass this machine (its route to clients must lead here; --mode fullnat or onearm needs none), or its firewall refuses clients' addresses", yet, i.From.Addr())
}
