package speaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"loxilb/internal/lb/bgp"
)

const (
	defaultHold  = 90 * time.Second
	defaultRetry = 2 * time.Second // gobgp's minimum
	// deferral is how long a restarting speaker waits for routes of its neighbors before it sends
	// its own (RFC 4724, section 4.1). It does not depend on them, so this is the shortest delay of
	// gobgp.
	deferral = time.Second
	// prefixPause is how long a session stays down after the neighbor announced too many prefixes.
	prefixPause = 5 * time.Minute
	// warnPercent is the part of the allowed prefixes from which on gobgp warns.
	warnPercent = 80
)

// peer is a neighbor that gobgp has.
type peer struct {
	key       string
	addr      string // without an address: of the router on its link
	config    bgp.Neighbor
	linkLocal linkLocalAddr // zero: addr is not link-local
	hasBFD    bool          // BFD is enabled in gobgp
	link      int           // index of the interface that leads to it, while established; 0: several hops
	pause     *time.Timer   // until a session that received too many prefixes begins again; nil: none
	status    status
}

// applyPeers passes changed neighbors to gobgp.
func (e *engine) applyPeers(want map[string]bgp.Neighbor) error {
	var errs []error
	for k, p := range e.peers {
		if n, stays := want[k]; !stays || n != p.config {
			errs = append(errs, e.deletePeer(p))
		}
	}
	for k := range e.refused {
		if _, stays := want[k]; !stays {
			delete(e.refused, k)
		}
	}
	for k, n := range want {
		if _, is := e.peers[k]; !is {
			errs = append(errs, e.addPeer(k, n))
		}
	}
	return errors.Join(errs...)
}

func (e *engine) addPeer(k string, n bgp.Neighbor) error {
	addr := n.Addr
	if !addr.IsValid() {
		var err error
		if addr, err = routerOnLink(n.Interface); err != nil {
			return e.refuse(k, err)
		}
		e.owner.requestRetry() // policies may name the neighbor
	}
	on, err := linkLocalOf(addr)
	if err != nil {
		return e.refuse(k, err)
	}
	p := &peer{key: k, addr: addr.String(), config: n, linkLocal: on, status: status{since: time.Now()}}
	if err := e.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: e.apiPeer(p)}); err != nil {
		return e.refuse(k, err)
	}
	delete(e.refused, k)
	e.peers[k] = p
	return nil
}

// refuse records why a neighbor cannot be added, and logs it once.
func (e *engine) refuse(k string, err error) error {
	if e.refused[k] != err.Error() {
		e.refused[k] = err.Error()
		e.log.Warn("BGP neighbor cannot be added; trying again", "neighbor", k, "error", err)
		e.owner.notify()
	}
	return fmt.Errorf("add BGP neighbor %s: %w", k, err)
}

func (e *engine) deletePeer(p *peer) error {
	e.disableBFD(p)
	p.stopPause()
	delete(e.peers, p.key)
	defer e.problems.take(p.addr)
	err := e.removePassword(p)
	err = errors.Join(err, e.server.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: p.addr}))
	if err != nil {
		return fmt.Errorf("delete BGP neighbor %s: %w", p.key, err)
	}
	return nil
}

// logUnchanged logs that gobgp does not change a neighbor, if err is not nil.
func (e *engine) logUnchanged(p *peer, err error) {
	if err != nil {
		e.log.Error("BGP neighbor cannot be changed", "neighbor", p.key, "error", err)
	}
}

// removePassword removes the password of a neighbor from the listening sockets. DeletePeer of
// gobgp v4.8.0 leaves it there, and connections of a later neighbor without one would fail.
func (e *engine) removePassword(p *peer) error {
	if p.config.Password == "" {
		return nil
	}
	without := e.apiPeer(p)
	without.Conf.AuthPassword, without.Conf.AdminDown = "", true
	_, err := e.server.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: without})
	return err
}

// update gives gobgp a neighbor again. Timers, limits and BFD change without a new session.
func (e *engine) update(p *peer) error {
	_, err := e.server.UpdatePeer(context.Background(), &api.UpdatePeerRequest{Peer: e.apiPeer(p)})
	return err
}

// apiPeer returns a neighbor in gobgp's form.
func (e *engine) apiPeer(p *peer) *api.Peer {
	n := p.config
	hold := cmp.Or(n.Hold, defaultHold)
	a := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.addr, PeerAsn: n.ASN, AuthPassword: n.Password},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:               seconds(hold),
			KeepaliveInterval:      seconds(cmp.Or(n.Keepalive, hold/3)),
			ConnectRetry:           seconds(cmp.Or(n.Retry, defaultRetry)),
			IdleHoldTimeAfterReset: 1,
		}},
		Transport: &api.Transport{PassiveMode: n.Passive, RemotePort: uint32(n.Port)},
		Bfd:       apiBFD(p),
	}
	if n.Source.IsValid() {
		a.Transport.LocalAddress = n.Source.String()
	} else if p.linkLocal.local.IsValid() { // otherwise gobgp refuses changes while the interface is away
		a.Transport.LocalAddress = p.linkLocal.local.String()
	}
	if n.Multihop > 0 {
		a.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	restart := e.restartTime(n)
	if restart > 0 {
		a.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(restart / time.Second),
			DeferralTime:    uint32(deferral / time.Second),
			LocalRestarting: true,
		}
	}
	for _, f := range families(n) {
		a.AfiSafis = append(a.AfiSafis, e.apiFamily(f, restart > 0))
	}
	return a
}

// restartTime returns how long a neighbor keeps this node's routes; 0: it drops them at once.
func (e *engine) restartTime(n bgp.Neighbor) time.Duration {
	if n.NoGracefulRestart || n.BFD.Interval > 0 {
		return 0
	}
	return e.config.GracefulRestart
}

// families returns the IP versions whose routes a session carries: its own version, because the
// next hop is its local address. An unnumbered session has only a link-local address, which works
// for both.
func families(n bgp.Neighbor) []api.Family_Afi {
	switch {
	case !n.Addr.IsValid():
		return []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6}
	case n.Addr.Is4():
		return []api.Family_Afi{api.Family_AFI_IP}
	default:
		return []api.Family_Afi{api.Family_AFI_IP6}
	}
}

func (e *engine) apiFamily(f api.Family_Afi, restart bool) *api.AfiSafi {
	family := &api.Family{Afi: f, Safi: api.Family_SAFI_UNICAST}
	return &api.AfiSafi{
		Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
		MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: restart}},
		PrefixLimits:      &api.PrefixLimit{Family: family, MaxPrefixes: e.maxPrefixes(), ShutdownThresholdPct: warnPercent},
	}
}

func (e *engine) maxPrefixes() uint32 {
	if e.config.MaxPrefixes == 0 {
		return bgp.DefaultMaxPrefixes
	}
	return e.config.MaxPrefixes
}

func seconds(d time.Duration) uint64 {
	return uint64(max(d.Round(time.Second), time.Second) / time.Second)
}

// tooManyPrefixes restarts the session of a neighbor after a pause, or once another number of
// prefixes is allowed: gobgp keeps it down.
func (e *engine) tooManyPrefixes(p *peer) {
	p.stopPause()
	p.pause = time.AfterFunc(prefixPause, func() {
		e.owner.mu.Lock()
		defer e.owner.mu.Unlock()
		if e.owner.engine == e && e.peers[p.key] == p {
			e.endPause(p)
		}
	})
}

// endPause restarts the session of a neighbor that announced too many prefixes, if it is paused.
func (e *engine) endPause(p *peer) {
	if p.pause == nil {
		return
	}
	p.stopPause()
	p.pause = nil
	e.logUnchanged(p, e.server.EnablePeer(context.Background(), &api.EnablePeerRequest{Address: p.addr}))
}

func (p *peer) stopPause() {
	if p.pause != nil {
		p.pause.Stop()
	}
}
