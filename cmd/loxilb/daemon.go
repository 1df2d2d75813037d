package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "loxilb/api/v1"
	"loxilb/internal/announce"
	"loxilb/internal/announce/election"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/cluster"
	"loxilb/internal/config"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/health"
	"loxilb/internal/control/health/probe"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/explain"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/event"
	"loxilb/internal/host/build"
	"loxilb/internal/host/machine"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/telemetry/flowlog"
	"loxilb/internal/telemetry/logs"
	"loxilb/internal/telemetry/metrics"
	"loxilb/internal/telemetry/otlp"
)

// sweepEvery is the interval of sweeps, which free the rows of expired connections. Packets treat a
// connection as absent from the moment it expires.
const sweepEvery = 5 * time.Second

// daemon holds the parts of the load balancer. Each part declares the interfaces that it needs;
// only assemble knows their implementations.
type daemon struct {
	config       *config.Config
	log          *slog.Logger
	network      *netdev.Net
	state        *desired.State
	datapath     *datapath.Datapath
	hub          *event.Hub
	announcer    *announce.Announcer
	duplicates   *announce.Duplicates
	monitor      *health.Monitor
	health       *reconcile.Health
	services     *reconcile.Services
	endpoints    *reconcile.EndpointProbes
	netObjects   netObjects
	attached     *reconcile.Attached
	policers     *reconcile.Policers
	mirrors      *reconcile.Mirrors
	gtp          *reconcile.GTP
	rules        *reconcile.Rules
	passive      *reconcile.Passive
	interfaces   *reconcile.Interfaces
	xdp          *reconcile.Task
	hiddenTags   func() []reconcile.HiddenTags
	xdpReports   func() map[string]string
	sockets      *reconcile.Task
	follower     *reconcile.Network
	ipsec        *reconcile.IPsec
	api          *httpapi.API
	pins         *pinWatch
	pressure     *pressureWatch
	rates        *rates.Sampler
	peaks        *peaks
	expiries     probe.ExpiryCache // of certificate files
	exchange     *exchangeWatch
	unserved     *unservedWatch
	endRequests  chan struct{}      // capacity 1: requests to end connections of removed endpoints
	roleHook     *announce.RoleHook // nil: none
	otlp         *otlp.Exporter     // nil: none
	bgp          *reconcile.BGP
	sessions     *bgpSessions               // nil: BGP is off
	pausable     *reconcile.PausableSpeaker // sessions' speaker, while the node is in service
	routes       *reconcile.Routes          // nil: BGP is off
	maintenance  *reconcile.Maintenance
	requestExit  context.CancelCauseFunc // ends the daemon
	bfd          *election.Manager       // BFD sessions with other nodes
	elections    *reconcile.Elections
	roleLeases   *reconcile.RoleLeases
	clusterNodes *reconcile.ClusterNodes
	leases       *reconcile.Leases // of VIPs
	cluster      *cluster.Node     // exchanges connections with other nodes; nil: no cluster
	startTime    time.Time         // when the process started
	restarting   func() bool       // reports whether another process is about to replace this one
}

// assemble makes the parts. Nothing runs yet.
func assemble(c *config.Config, log *slog.Logger, lines *logs.Ring, network *netdev.Net, state *desired.State, d *datapath.Datapath, lock *pins.Lock) (*daemon, error) {
	p := &daemon{
		config: c, log: log, network: network, state: state, datapath: d, hub: event.NewHub(), endRequests: make(chan struct{}, 1), startTime: time.Now(),
		announcer: announce.New(network, network.VIPs(), d, c.VIPAnnouncements, log),
	}
	if c.RoleHook != "" {
		p.roleHook = announce.NewRoleHook(c.RoleHook, c.RoleHookOptional, log)
	}
	p.pins = &pinWatch{lock: lock, log: log}
	p.pressure = &pressureWatch{fullness: d.Fullness, untilPossible: d.WakeSignal, hub: p.hub, log: log}
	p.exchange = &exchangeWatch{datapath: d, version: version, hub: p.hub, log: log}
	users := access.Open(c.StateDir)
	if c.BGP {
		p.sessions = newBGPSessions(log, p.hub, p.electsWith)
	}
	statuses := p.newStatuses(users, p.startTime)
	o := reconcile.Observers{Statuses: statuses, Events: p.hub, Log: log}
	p.monitor = health.New(health.Config{Log: log, Files: c.ProbeFiles, CompatFiles: c.CompatFiles(), Redirect: p.redirectProbe, Changed: func(key string) { p.health.Changed(key) }})
	p.health = reconcile.NewHealth(p.monitor, o)
	vips := announce.Share(owner{p.announcer})
	p.leases = reconcile.NewLeases(d, network.HasOwn, o)
	p.services = reconcile.NewServices(reconcile.ServicesConfig{
		Observers: o, Desired: state, Tables: d, VIPs: vips.Part(), Leases: p.leases.Part(), Sources: network.Sources(),
		Endpoints: network.Neighbours(), Health: p.health, Ended: p.endSoon, Role: p.roleChanged, Seed: c.HashSeed,
	})
	p.endpoints = reconcile.NewEndpointProbes(state, p.health, o)
	made, err := network.Objects().OpenLedger(c.StateDir)
	if err != nil {
		return nil, err
	}
	objects := network.Objects().Network(made)
	p.netObjects = newNetObjects(state, objects, made, o)
	p.attached = reconcile.NewAttached(state, d, network.Links)
	p.policers = reconcile.NewPolicers(state, p.attached, o)
	p.mirrors = reconcile.NewMirrors(state, p.attached, network.Objects(), o)
	p.gtp = reconcile.NewGTP(state, d, network.Objects(), o)
	p.rules, err = p.newRules(reconcile.LeasedOwner{Owner: vips.Part(), Leases: p.leases.Part()}, o)
	if err := errors.Join(err, p.newCluster(o)); err != nil {
		return nil, err
	}
	p.bgp = p.newBGP(o)
	p.newElections(o)
	p.passive = reconcile.NewPassive(p.health, d)
	p.ipsec = reconcile.NewIPsec(network, d.SetIPsec, c.IPsec == config.IPsecIgnore, state, p.health, o)
	p.health.SetRouteCheck(network.Neighbours().RouteError)
	p.followProblems()
	p.interfaces = reconcile.NewInterfaces(reconcile.InterfacesConfig{
		Observers: o, Hooks: d, Links: network.Links, Whitelist: c.Whitelist, Blacklist: c.Blacklist,
	})
	xdp := reconcile.NewXDP(d, reconcile.XDPConfig{
		Choice: c.XDP, Whitelist: c.Whitelist, Blacklist: c.Blacklist, Features: network.XDPFeatures,
		HidesTags: network.HidesTags,
	}, log)
	p.hiddenTags, p.xdpReports = xdp.HiddenTags, xdp.Reports
	p.xdp = reconcile.NewTask("xdp", 0, func(context.Context) error { return xdp.Sync(network.Links()) }, o)
	p.sockets = reconcile.NewTask("own sockets", 0, p.attachSockets, o)
	p.follower = reconcile.NewNetwork(d, network, o, p.networkChanged)

	source := view{d, statuses, p.health, p.attached, log, network.Sources()}
	p.followMaintenance(source, o)
	p.rates = rates.New(source, log)
	p.unserved = newUnservedWatch(func(yield func(lb.Key, uint64, *servicestate.Service)) { eachState(state, source, yield) }, p.hub, log)
	p.peaks = &peaks{state: state, rates: p.rates}
	measured, err := p.newMetrics(source)
	if err != nil {
		return nil, err
	}
	p.otlp = p.newExporter(measured, statuses)
	p.api = httpapi.New(httpapi.Options{
		Store: state, Statuses: statuses, Events: p.hub, DataPath: source, Health: p.health, Network: objects,
		Explainer: p.explainer(source),
		Sampler:   p.rates, Interfaces: func() map[int]string { return interfaceNames(network) }, XDP: p.xdpReports, Dropper: p.rules.Dropper, Metrics: measured, Observe: measured.Observe,
		Token: c.API.Token, Users: httpapi.Loopback{Everyone: c.API.Insecure, UIDs: c.API.UIDs, GIDs: c.API.GIDs},
		Hosts:         append(c.API.Hosts, strings.ToLower(hostname())),
		RequireTokens: c.API.Users, Access: users, Audit: access.NewAudit(c.StateDir), Ready: p.ready,
		Version: apiVersion(d.ABI()), Log: log, LogLevel: c.LogLevel, Lines: lines, ProbeFiles: c.ProbeFiles, MetricsOff: c.MetricsOff, Compat: c.Compat,
		BGP: p.bgpNow(), Announcements: p.announcements(), Drain: p.maintenance.Progress, Cluster: p.clusterNow, Nodes: p.nodes, Verifier: p.verifier(statuses), Doctor: p.doctor(p.startTime, statuses), NoPage: !c.Page,
		Own: p.isOwnAddress, AllAnnouncements: p.allAnnouncements(),
	})
	state.DescribeNode(p.describeNode, p.storeChanged)
	return p, nil
}

func (p *daemon) explainer(source view) *explain.Explainer {
	return explain.New(explain.Explainer{
		Desired: p.state, DataPath: source, Health: p.health, Network: p.network, Loads: p.rates,
		LocalSockets: p.config.LocalSockets, Gateways: p.config.ClusterInterface != "",
		Announcements: p.announcements(), Sessions: p.bgpNow(),
	})
}

// newExporter makes the exporter of metrics and events, or returns nil without a configured
// collector.
func (p *daemon) newExporter(measured *metrics.Metrics, statuses *status.Table) *otlp.Exporter {
	c := p.config.OTLP
	if c.Endpoint == "" {
		return nil
	}
	e := otlp.New(otlp.Config{
		Endpoint: c.Endpoint, Headers: c.Headers, TLS: c.TLS, Interval: c.Interval, Version: version, Host: hostname(),
	}, measured, p.hub, p.log)
	statuses.Follow(status.ID{Kind: reconcile.TaskKind, Key: "otlp"}, e.LastError)
	return e
}

func (p *daemon) newMetrics(source view) (*metrics.Metrics, error) {
	return metrics.New(p.state, source, metrics.Options{
		Build: metrics.Build{Version: version, Kernel: kernelRelease(), Hook: string(p.datapath.Hook())}, Endpoints: p.config.Metrics.Endpoints, Compat: p.config.Compat,
		Ready: func() bool { ready, _ := p.ready(); return ready },
		Peaks: p.peaks, Certificates: p.certificates, Sessions: p.bgpNow(), Pairs: p.bfdCounts, Cluster: p.clusterNow, SharedStore: p.state.Remote, Announcements: p.allAnnouncements(),
	}, p.log)
}

// apiVersion returns the API's description of the build and the namespace.
func apiVersion(abi string) v1.Version {
	about := build.Of(version, commit, date)
	return v1.Version{
		Version: about.Version, BuildInfo: about.Brief(), Commit: about.Commit, CommitDate: about.Date, Go: about.Go, ObjectABI: abi,
		Namespace: machine.Namespace(),
	}
}

// newStatuses returns the statuses of objects and of other parts that can fail.
func (p *daemon) newStatuses(users *access.Users, start time.Time) *status.Table {
	statuses := status.NewTable()
	for key, lastError := range map[string]func() (time.Time, error){
		"changes of the kernel": p.network.LastError, "neighbours": p.network.Neighbours().LastError, "announcements": p.announcer.LastError,
		"data path": p.pins.lastError, "state": p.state.Unwritten,
	} {
		statuses.Follow(status.ID{Kind: reconcile.TaskKind, Key: key}, lastError)
	}
	if err := users.Err(); err != nil {
		p.log.Error("nobody can log in", "error", err)
		statuses.Follow(status.ID{Kind: reconcile.TaskKind, Key: "users"}, func() (time.Time, error) { return start, err })
	}
	statuses.Include(func() []status.Status { return unknownObjects(p.state) })
	statuses.Include(func() []status.Status { return networkProblems(p.network) })
	statuses.Include(p.storeStatuses)
	statuses.Include(p.pressure.statuses)
	statuses.Include(p.exchange.statuses)
	statuses.Include(func() []status.Status { return p.unprotectedStatuses() }) // p.pairs is made later
	if p.sessions != nil {
		statuses.Include(p.sessions.statuses)
	}
	return statuses
}

// serve runs the parts until ctx ends or the API fails; parts retry other failures. The API answers
// from the start, so a user can delete a faulty object.
func (p *daemon) serve(ctx context.Context) error {
	requested, requestExit := context.WithCancelCause(ctx)
	defer requestExit(nil)
	p.requestExit = requestExit
	ctx, cancel := p.untilHandedOver(requested)
	defer cancel()
	listener, err := p.listen(ctx)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	run := func(f func(context.Context)) {
		group.Go(func() error { f(running); return nil })
	}
	if listener != nil {
		group.Go(func() error { return listener.Serve(running) })
	}
	run(func(ctx context.Context) { p.network.Run(ctx, p.hub) })
	own := p.owning(running, group)
	own(func(ctx context.Context) { p.announcer.Run(ctx, p.hub) })
	run(p.duplicates.Run)
	p.beginElections() // before VIPs are owned
	run(p.elect)
	run(p.elections.Follow)
	run(p.roleLeases.Run)
	if p.cluster != nil {
		if p.sessions != nil {
			p.sessions.changed = p.cluster.SessionsChanged
		}
		run(p.cluster.Run)
	}
	run(p.services.Run)
	if p.roleHook != nil {
		run(p.roleHook.Run)
	}
	if p.otlp != nil {
		run(p.otlp.Run)
	}
	run(p.endpoints.Run)
	for _, loop := range p.netObjects {
		run(loop.Run)
	}
	run(func(ctx context.Context) { p.network.Objects().Follow(ctx, p.log, p.netObjects.changed) })
	run(p.policers.Run)
	run(p.mirrors.Run)
	run(p.gtp.Run)
	run(p.rules.Run)
	run(p.clusterNodes.Run)
	run(p.bgp.Run)
	p.runMaintenance(run)
	if p.sessions != nil {
		run(p.sessions.run)
	}
	run(p.writeFlowLogs)
	run(p.recordPackets)
	run(func(ctx context.Context) { p.state.RollBackWhenDue(ctx, p.log, p.publishRevision) })
	run(p.monitor.Run)
	run(p.passive.Run)
	run(p.drops().run)
	run(p.ipsec.Run)
	run(p.datapath.KeepHostPorts)
	run(p.datapath.RecountSockets)
	run(p.datapath.DetachIdleProbes)
	run(p.pins.run)
	run(p.pressure.run)
	run(p.unserved.run)
	run(p.rates.Run)
	run(p.peaks.run)
	own(p.attach)
	run(returnMemory)
	err = group.Wait()
	p.manager().stopping()
	p.log.Info("stopping; the data path stays attached (loxilb --detach removes it)")
	switch {
	case errors.Is(context.Cause(requested), config.ErrDrained):
		return config.ErrDrained
	case ctx.Err() != nil:
		return nil // a requested stop
	}
	return err
}

// attach attaches the programs to interfaces, after a first attempt to apply each service, the
// firewall rules and the IPsec policies: the first packet must not bypass them.
func (p *daemon) attach(ctx context.Context) {
	for _, idle := range []<-chan struct{}{p.services.Idle(), p.rules.Idle(), p.ipsec.Idle()} {
		select {
		case <-ctx.Done():
			return
		case <-idle:
		}
	}
	if err := p.exchange.begin(time.Now()); err != nil {
		p.log.Error("drops cannot be read", "error", err)
	}
	p.datapath.PromiseSweep(sweepEvery) // packets arrive before the first sweep
	p.sockets.Mark()                    // before the tasks run: a task without work reports itself idle
	p.xdp.Mark()
	var running sync.WaitGroup
	defer running.Wait()
	for _, f := range []func(context.Context){p.interfaces.Run, p.xdp.Run, p.sockets.Run, p.follower.Run, p.localAnswers} {
		running.Go(func() { f(ctx) })
	}
	for _, idle := range p.started() {
		select {
		case <-ctx.Done():
			return
		case <-idle:
		}
	}
	if !p.awaitCluster(ctx) {
		return
	}
	p.openRoutes()
	p.log.Info("ready", "version", version, "namespace", machine.Namespace(), "services", p.state.Services.Len(p.state.Snapshot()),
		"hook", p.datapath.Hook())
	running.Go(func() { p.manager().started(ctx) })
	running.Go(func() { p.exchange.run(ctx) })
	// These send packets that end connections, so they need attached interfaces.
	running.Go(func() { p.datapath.SweepEvery(ctx, sweepEvery) })
	running.Go(func() { p.datapath.EndEvery(ctx, p.endRequests) })
	debug.FreeOSMemory() // loading programs needed memory, mostly for the kernel's types
}

// ready reports whether packets are balanced, and the progress of the start.
func (p *daemon) ready() (bool, string) {
	if _, err := p.pins.lastError(); err != nil {
		return false, err.Error()
	}
	if done, applied, total := p.services.Started(); !done {
		return false, fmt.Sprintf("starting: %d of %d services are in the data path", applied, total)
	}
	for _, idle := range p.started() {
		select {
		case <-idle:
		default:
			return false, "starting: interfaces are being attached"
		}
	}
	if p.cluster.Refused() {
		return false, "VIPs are not announced: " + p.heldReason()
	}
	return true, "ready"
}

// manager returns the reporter to the service manager. The daemon is alive while it can answer a
// readiness check and read services.
func (p *daemon) manager() serviceManager {
	return serviceManager{alive: func() { p.ready(); p.state.Snapshot() }, log: p.log}
}

// started returns channels that are closed once all that packets need has been applied or has
// failed.
func (p *daemon) started() []<-chan struct{} {
	return append(append(p.follower.Idle(), p.gtp.Idle()...), p.interfaces.Idle(), p.xdp.Idle(), p.sockets.Idle(), p.policers.Idle(), p.mirrors.Idle(), p.rules.Idle())
}

// redirectProbe redirects a probe socket's packets to the VIP at an endpoint in mode dsr. An
// endpoint on this machine, or without a route, is probed by its own address.
func (p *daemon) redirectProbe(fd int, t health.Target) error {
	out, ok, err := p.network.Sources().Out(context.Background(), t.Addr)
	if err != nil || !ok {
		return err
	}
	return p.datapath.RedirectProbe(fd, reconcile.Describe(out), datapath.ProbePath{VIP: t.VIP, Tunnel: t.Tunnel, Wait: t.Probe.Timeout})
}

// endSoon requests an immediate check for connections to end.
func (p *daemon) endSoon() {
	select {
	case p.endRequests <- struct{}{}:
	default: // a signal is pending already
	}
}

// roleChanged runs the user's role hook, if there is one.
func (p *daemon) roleChanged(one lb.Instance) {
	vip := "0.0.0.0" // as in GET config/cistate/all
	if one.VIP.IsValid() {
		vip = one.VIP.String()
	}
	p.rules.RolesChanged()
	p.cluster.MembershipChanged()
	p.roleHook.Changed(announce.RoleChange{Instance: one.Name, State: string(one.Role), VIP: vip})
}

// attachSockets attaches or detaches the programs by which this machine's own sockets reach VIPs.
func (p *daemon) attachSockets(context.Context) error {
	if p.config.LocalSockets {
		return p.datapath.AttachSockets(p.config.Cgroup)
	}
	return p.datapath.DetachSockets()
}

// writeFlowLogs writes the configured logs of connections.
func (p *daemon) writeFlowLogs(ctx context.Context) {
	c := p.config.FlowLog
	var sinks []flowlog.Sink
	if c.File == "-" {
		sinks = append(sinks, flowlog.NewJSON(flowlog.Stream{Writer: os.Stdout, Title: "standard output"}))
	} else if c.File != "" {
		sinks = append(sinks, flowlog.NewJSON(flowlog.NewFile(c.File, c.Size, c.Files)))
	}
	if c.IPFIX != "" {
		sinks = append(sinks, flowlog.NewIPFIX(c.IPFIX, c.Domain))
	}
	if len(sinks) > 0 {
		flowlog.New(p.datapath, c.Rate, p.log, sinks...).Run(ctx)
	}
}

// listen opens the API's sockets, or none if it is switched off.
func (p *daemon) listen(ctx context.Context) (*transport.Server, error) {
	c := p.config.API
	if c.Disabled {
		return nil, nil
	}
	return p.api.Listen(ctx, transport.Listen{
		Plain: c.Plain, TLS: c.TLS, CertFile: c.CertFile, KeyFile: c.KeyFile, Socket: c.Socket, SocketGroup: c.Group,
	})
}
