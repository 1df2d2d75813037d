// Command loxilb is the load balancer's daemon: it loads the data path, attaches it, and keeps it as the REST
// API wants it.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	v1 "loxilb/api/v1"
	"loxilb/internal/announce"
	"loxilb/internal/apisocket"
	"loxilb/internal/config"
	"loxilb/internal/datapath"
	"loxilb/internal/datapath/pins"
	"loxilb/internal/desired"
	"loxilb/internal/event"
	"loxilb/internal/httpapi"
	"loxilb/internal/metrics"
	"loxilb/internal/netdev"
	"loxilb/internal/reconcile"
	"loxilb/internal/status"
)

// sweepEvery is how often connections that are over give their memory back; they are treated as absent from
// the moment that they are.
const sweepEvery = 5 * time.Second

// version and build are set by the linker.
var version, build = "dev", ""

func main() {
	// the data path and netlink live in the namespace of the thread, and so of the process
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(config.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr, run, config.AgentCommand(agent)))
}

func run(ctx context.Context, c *config.Config) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	for _, note := range c.Notes {
		log.Warn("flag without effect", "note", note)
	}
	dir, err := pins.Dir(c.PinPath)
	if err != nil {
		return err
	}
	network, err := netdev.Open(log)
	if err != nil {
		return err
	}
	defer network.Close()
	if c.Detach {
		return detach(ctx, network, dir, c.Force)
	}
	lock, err := takePins(dir, log)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if err := network.Prepare(); err != nil {
		return err
	}
	state, err := openState(c.StateDir, log)
	if err != nil {
		return err
	}
	defer state.Close()
	d, err := datapath.Load(datapath.Config{
		PinDir: dir, Connections: int(c.CTMax), HashSeed: c.HashSeed, NoRedirectPeer: !c.RedirectPeer, Hook: datapath.Hook(c.Attach),
		XDP: reconcile.XDPChoice(c.XDP).Mode(), Log: log,
	})
	if err != nil {
		return err
	}
	defer d.Close()
	return serve(ctx, c, log, network, state, d)
}

// serve runs the parts until ctx ends or one of them fails.
func serve(ctx context.Context, c *config.Config, log *slog.Logger, network *netdev.Net, state *desired.State, d *datapath.Datapath) error {
	hub := event.NewHub()
	sweep := make(chan struct{}, 1)
	kick := func() {
		select {
		case sweep <- struct{}{}:
		default: // one is waiting already
		}
	}
	vips := announce.New(network, network.VIPs(), log)
	services := reconcile.New(state, d, owner{vips}, sources{network.Sources()}, network.Neighbours(), kick, c.HashSeed, log)
	interfaces := reconcile.NewInterfaces(d, c.Whitelist, c.Blacklist, log)
	xdp := reconcile.NewXDP(d, reconcile.XDPConfig{
		Choice: reconcile.XDPChoice(c.XDP), Whitelist: c.Whitelist, Blacklist: c.Blacklist, Features: network.XDPFeatures,
	}, log)
	source := view{d, services, log}
	measured, err := metrics.New(state, source, metrics.Build{Version: version, Kernel: kernel(), Hook: string(d.Hook())}, log)
	if err != nil {
		return err
	}
	api, err := listen(ctx, c, httpapi.New(httpapi.Options{
		Store: state, Statuses: statuses{status.NewTable(), services}, Events: hub, DataPath: source, Metrics: measured, Observe: measured.Observe,
		Token: c.API.Token, Users: httpapi.Users{Everyone: c.API.Insecure, UIDs: c.API.UIDs, GIDs: c.API.GIDs},
		Version: v1.Version{Version: version, BuildInfo: build, Namespace: apisocket.Namespace()}, Log: log,
	}))
	if err != nil {
		return err
	}

	asked := ctx // ends when the daemon is asked to; its cause names the signal, and is no failure
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	running.Go(func() { network.Run(ctx, hub) })
	running.Go(func() { services.Run(ctx) })
	if err := services.Wait(ctx, state.Snapshot().Revision()); err != nil {
		log.Error("starting with services that are not in the data path yet", "err", err)
	}
	if err := d.SetLocalAddresses(network.Addresses()); err != nil {
		log.Error("services of every local address miss some", "err", err)
	}
	interfaces.Sync(network.Links()) // after the services: the first packet finds them
	xdp.Sync(network.Links())
	followSockets(c, d, log)
	running.Go(func() { d.SweepEvery(ctx, sweepEvery, sweep) })
	running.Go(func() { d.LogDrops(ctx) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.LocalAnswersChanged():
				interfaces.SetEgress()
			}
		}
	})
	running.Go(func() { vips.Run(ctx, hub) })
	running.Go(func() { followNetwork(ctx, hub, network, interfaces, xdp, services, d, log) })
	if api != nil {
		running.Go(func() { stop(api.Serve(ctx)) })
	}
	log.Info("ready", "version", version, "namespace", apisocket.Namespace(), "services", state.Services.Len(state.Snapshot()), "hook", d.Hook())
	debug.FreeOSMemory() // what loading programs took is not needed again, most of all the types of the kernel
	<-ctx.Done()
	err = context.Cause(ctx)
	running.Wait()
	log.Info("stopping; the data path stays attached (loxilb --detach removes it)")
	if asked.Err() != nil {
		return nil
	}
	return err
}

// listen opens the API's sockets, or none if it is switched off.
func listen(ctx context.Context, c *config.Config, api *httpapi.API) (*httpapi.Server, error) {
	if c.API.Disabled {
		return nil, nil
	}
	return api.Listen(ctx, httpapi.Listen{
		Plain: c.API.Plain, TLS: c.API.TLS, CertFile: c.API.CertFile, KeyFile: c.API.KeyFile,
		Socket: c.API.Socket, SocketGroup: c.API.Group,
	})
}

// followNetwork brings what changes in the network into the data path, many events at once.
func followNetwork(ctx context.Context, hub *event.Hub, network *netdev.Net, interfaces *reconcile.Interfaces, xdp *reconcile.XDP,
	services *reconcile.Reconciler, d *datapath.Datapath, log *slog.Logger) {
	changes := hub.SubscribeAfter(0, event.KindLink, event.KindRoute)
	for {
		e, lost, err := changes.Next(ctx)
		if err != nil {
			return
		}
		links := false
		for ok := true; ok; e, _, ok = changes.Poll() {
			links = links || lost > 0 || e.Kind() == event.KindLink
		}
		if links {
			interfaces.Sync(network.Links())
			xdp.Sync(network.Links())
		}
		if err := errors.Join(d.ShareNextHops(network.RoutesByDestination()), d.BumpNextHops()); err != nil {
			log.Error("next hops may be stale for half a minute", "error", err)
		}
		if err := d.SetLocalAddresses(network.Addresses()); err != nil {
			log.Error("services of every local address miss some", "error", err)
		}
		if err := setDefaultRoutes(network, d); err != nil {
			log.Error("connections of endpoints may leave with their own address", "error", err)
		}
		services.Moved()
	}
}

func setDefaultRoutes(network *netdev.Net, d *datapath.Datapath) error {
	list, known := network.DefaultRoutes()
	if !known {
		return nil // an event tells when they are
	}
	out := make([]datapath.DefaultRoute, len(list))
	for i, r := range list {
		out[i] = datapath.DefaultRoute{Gateway: r.Via, Interface: r.Link}
	}
	return d.SetDefaultRoutes(out)
}

// followSockets has this machine's own sockets reach VIPs, or not.
func followSockets(c *config.Config, d *datapath.Datapath, log *slog.Logger) {
	err := d.DetachSockets
	if c.LocalSockets {
		err = func() error { return d.AttachSockets(c.Cgroup) }
	}
	if err := err(); err != nil {
		log.Error("this machine's own sockets are not led to endpoints", "err", err)
	}
}

// kernel is the running kernel's release.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
