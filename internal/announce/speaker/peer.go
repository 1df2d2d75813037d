package speaker

import (
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
	// its own (RFC 4724, section 4.1). It depends on none of them, so the shortest that gobgp has.
	deferral = time.Second
	// warnPercent is the part of the allowed prefixes from which on gobgp warns.
	warnPercent = 80
)

// peer is a neighbor that gobgp has.
type peer struct {
	key    string
	addr   string // gobgp's name of it
	config bgp.Neighbor
	hasBFD bool // BFD is enabled in gobgp
	link   int  // index of the interface that leads to it, while established; 0: several hops
	status status
}

// applyPeers gives gobgp the neighbors that differ.
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
	p := &peer{key: k, addr: n.Addr.String(), config: n}
	if err := e.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: e.apiPeer(n)}); err != nil {
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
	delete(e.peers, p.key)
	if err := e.server.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: p.addr}); err != nil {
		return fmt.Errorf("delete BGP neighbor %s: %w", p.key, err)
	}
	return nil
}

// apiPeer returns a neighbor as gobgp takes it, without BFD.
func (e *engine) apiPeer(n bgp.Neighbor) *api.Peer {
	hold := orDefault(n.Hold, defaultHold)
	p := &api.Peer{
		Conf: &api.PeerConf{PeerAsn: n.ASN, AuthPassword: n.Password},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime:               seconds(hold),
			KeepaliveInterval:      seconds(orDefault(n.Keepalive, hold/3)),
			ConnectRetry:           seconds(orDefault(n.Retry, defaultRetry)),
			IdleHoldTimeAfterReset: 1,
		}},
		Transport: &api.Transport{PassiveMode: n.Passive, RemotePort: uint32(n.Port)},
	}
	if n.Addr.IsValid() {
		p.Conf.NeighborAddress = n.Addr.String()
	} else {
		p.Conf.NeighborInterface = n.Interface
	}
	if n.Source.IsValid() {
		p.Transport.LocalAddress = n.Source.String()
	}
	if n.Multihop > 0 {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	restart := e.restartTime(n)
	if restart > 0 {
		p.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(restart / time.Second),
			DeferralTime:    uint32(deferral / time.Second),
			LocalRestarting: true,
		}
	}
	for _, f := range families(n) {
		p.AfiSafis = append(p.AfiSafis, e.apiFamily(f, restart > 0))
	}
	return p
}

// restartTime returns how long a neighbor keeps this node's routes; 0: it drops them at once.
func (e *engine) restartTime(n bgp.Neighbor) time.Duration {
	if n.NoGracefulRestart || n.BFD.Interval > 0 {
		return 0
	}
	return e.config.GracefulRestart
}

// families returns the IP versions whose routes a session carries: its own, because the next hop is
// its local address. Without addresses there is only a link-local one, which serves both.
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
	limit := e.config.MaxPrefixes
	if limit == 0 {
		limit = bgp.DefaultMaxPrefixes
	}
	return &api.AfiSafi{
		Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
		MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: restart}},
		PrefixLimits:      &api.PrefixLimit{Family: family, MaxPrefixes: limit, ShutdownThresholdPct: warnPercent},
	}
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

func seconds(d time.Duration) uint64 {
	return uint64(max(d.Round(time.Second), time.Second) / time.Second)
}
