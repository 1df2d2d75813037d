package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"loxilb/internal/lb/bgp"
)

const (
	ceaseTime = time.Second     // limits how long Stop waits until neighbors were sent their Cease
	stopTime  = 5 * time.Second // limits how long gobgp may take to stop
)

// engine is a running gobgp and its configuration.
type engine struct {
	log     *slog.Logger
	owner   *Speaker
	config  bgp.Speaker
	server  *server.BgpServer
	unwatch context.CancelFunc
	tasks   sync.WaitGroup // that end with unwatch; they take owner.mu

	peers       map[string]*peer  // by key of the neighbor
	refused     map[string]string // by key: why gobgp does not take a neighbor
	loggedError string            // the last error that was logged
	routes      map[netip.Prefix]bgp.Attributes
	sent        sentCounts
	learned     *learnedRoutes
	problems    *problems

	rules    *rules // nil: none yet
	rulesOf  ruleContext
	policyOf *policy
}

// startEngine starts gobgp, listening. The caller holds s.mu.
func startEngine(s *Speaker) (*engine, error) {
	config := s.wanted.speaker
	if config.Port == 0 {
		config.Port = bgp.DefaultPort
	}
	listen, err := listenAddrs(config.Port)
	if err != nil {
		return nil, err
	}
	id, err := routerID(&s.wanted)
	if err != nil {
		return nil, err
	}
	learned, err := newLearned(s.log)
	if err != nil {
		return nil, err
	}
	known := &problems{changed: s.notify, last: map[string]string{}}
	e := &engine{
		problems: known,
		log:      s.log,
		owner:    s,
		config:   config,
		refused:  map[string]string{},
		server:   server.NewBgpServer(server.LoggerOption(libraryLog(s.log, known), nil)),
		peers:    map[string]*peer{},
		routes:   map[netip.Prefix]bgp.Attributes{},
		learned:  learned,
	}
	go e.server.Serve()
	if err := e.begin(id, listen); err != nil {
		e.learned.close(true)
		e.server.Stop()
		return nil, err
	}
	s.log.Info("BGP speaker started", "as", config.ASN, "router_id", id, "port", config.Port)
	return e, nil
}

func (e *engine) begin(id netip.Addr, listen []string) error {
	err := e.server.StartBgp(context.Background(), &api.StartBgpRequest{Global: &api.Global{
		Asn:             e.config.ASN,
		RouterId:        id.String(),
		ListenPort:      int32(e.config.Port),
		ListenAddresses: listen,
	}})
	if err != nil {
		return fmt.Errorf("start gobgp: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.unwatch = cancel
	e.learned.adopt(e.config.Install)
	e.learned.enable(e.config.Install)
	// Two watches: sessions do not wait until the kernel has tens of thousands of routes.
	err = errors.Join(
		e.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: e.peerEvent}, server.WatchPeer()),
		e.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{
			OnBestPath: func(paths []*apiutil.Path, _ time.Time) { e.learned.update(paths) },
		}, server.WatchBestPath(false)))
	if err != nil {
		cancel()
		return fmt.Errorf("watch sessions of gobgp: %w", err)
	}
	e.tasks.Go(func() { e.watchLinks(ctx) })
	e.tasks.Go(func() { e.findRouters(ctx) })
	e.tasks.Go(func() { e.watchKernel(ctx) })
	e.tasks.Go(func() { e.dropStaleRoutes(ctx) })
	return nil
}

// apply brings gobgp to the desired state. Policies and routes come before neighbors, so a new
// session begins with all of them.
func (e *engine) apply(w *wanted) error {
	e.applyConfig(w.speaker)
	if err := e.applyPolicy(w); err != nil {
		return e.logOnce(err)
	}
	return errors.Join(e.logOnce(e.applyRoutes(w.routes)), e.applyPeers(w.neighbors))
}

// applyConfig applies the changes of the speaker that do not restart it.
func (e *engine) applyConfig(g bgp.Speaker) {
	limit := g.MaxPrefixes != e.config.MaxPrefixes
	e.config.Install, e.config.MaxPrefixes = g.Install, g.MaxPrefixes
	e.learned.enable(g.Install)
	for _, p := range e.peers {
		if !limit {
			break
		}
		e.logUnchanged(p, e.update(p))
		e.endPause(p)
	}
}

// logOnce logs an error of gobgp unless it logged the same error before.
func (e *engine) logOnce(err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != e.loggedError && text != "" {
		e.log.Error("BGP speaker cannot be changed; trying again", "error", err)
	}
	e.loggedError = text
	return err
}

// stop ends all sessions and gobgp. The caller holds owner.mu.
func (e *engine) stop(reason string) {
	for _, p := range e.peers {
		p.stopPause()
		if p.hasBFD {
			e.disableBFD(p)
			time.Sleep(bfdPause)
		}
	}
	if reason != "" {
		e.cease(reason)
	}
	e.unwatch()
	e.learned.close(reason == "")
	done := make(chan error, 1)
	go func() {
		err := e.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: reason == ""})
		e.server.Stop()
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(stopTime):
		err = fmt.Errorf("gobgp does not answer within %v", stopTime)
	}
	if err != nil {
		e.log.Error("BGP speaker does not stop", "error", err)
		return
	}
	e.log.Info("BGP speaker stopped", "reason", reason)
}

// cease notifies all neighbors why their sessions end, and waits until the messages were sent.
func (e *engine) cease(reason string) {
	for _, p := range e.peers {
		r := &api.DisablePeerRequest{Address: p.addr, Communication: reason}
		e.logUnchanged(p, e.server.DisablePeer(context.Background(), r))
	}
	for deadline := time.Now().Add(ceaseTime); time.Now().Before(deadline) && e.anyEstablished(); {
		time.Sleep(time.Millisecond)
	}
}

func (e *engine) anyEstablished() (found bool) {
	e.list(false, func(p *api.Peer) {
		found = found || p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
	})
	return found
}

// list calls f for each peer of gobgp. Counting announced routes applies the policies to all
// routes.
func (e *engine) list(countAnnounced bool, f func(*api.Peer)) {
	r := &api.ListPeerRequest{EnableAdvertised: countAnnounced}
	if err := e.server.ListPeer(context.Background(), r, f); err != nil { // it has been stopped
		e.log.Debug("BGP sessions cannot be listed", "error", err)
	}
}
