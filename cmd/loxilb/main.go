// Command loxilb is the load balancer's daemon: it loads and attaches the data path, and applies
// the configuration of the REST API to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"loxilb/internal/announce/speaker"
	"loxilb/internal/config"
	"loxilb/internal/control/reconcile"
	"loxilb/internal/control/store"
	"loxilb/internal/host/build"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/telemetry/logs"
)

// version, and commit and date of the commit, are set by the linker.
var version, commit, date = "dev", "", ""

// idleResetRate is the number of idle connections per second that end by RSTs to both ends. The
// others end silently: a client that lost a million connections must not receive a million RSTs at
// once.
const idleResetRate = 1000

func main() {
	// the data path and netlink live in the namespace of the thread, and so of the process
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// By default, Go ends a process that writes a line of its log after the reader of standard
	// error has died. Ignore would also apply to child processes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(config.Main(ctx, versionText, os.Args[1:], os.Stdout, os.Stderr, run, config.AgentCommand(agent)))
}

// versionText returns the text of --version.
func versionText() (string, error) {
	abi, err := datapath.ABI()
	about := build.Of(version, commit, date)
	about.ObjectABI = abi
	return "loxilb version " + version + "\n" + about.Lines(), err
}

// run opens the state, the network and the data path, and serves until ctx ends.
func run(ctx context.Context, c *config.Config) error {
	lines := logs.NewRing()
	log, flush := logs.New(c.LogLevel, lines, os.Stderr)
	defer flush()
	for _, note := range c.Notes {
		log.Warn("flag without effect", "note", note)
	}
	if c.OpenAccess != "" {
		log.Warn("the API is open because of --compat", "note", c.OpenAccess)
	}
	if c.CPUProfile != "" {
		stop, err := profile(c.CPUProfile, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	dir, err := pins.Dir(c.PinPath)
	if err != nil {
		return err
	}
	if c.CheckUpgrade {
		if err := checkCredentials(&c.Cluster); err != nil {
			return err
		}
		return checkUpgrade(loading(c, dir, log), os.Stdout)
	}
	network, err := netdev.Open(log)
	if err != nil {
		return err
	}
	defer network.Close()
	if c.Detach {
		return detach(ctx, network, dir, c.Force)
	}
	lock, err := lockPins(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if err := network.Prepare(); err != nil {
		return err
	}
	unread := unreadBootFiles(c, log)
	state, closeState, err := openShared(ctx, c, log)
	if err != nil {
		return errors.Join(err, unread.Withdraw())
	}
	defer closeState()
	d, err := datapath.Load(loading(c, dir, log))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := tryBeforeExchange(d, loading(c, dir, log)); err != nil {
		return err
	}
	daemon, err := assemble(c, log, lines, network, state, d, lock)
	if err != nil {
		return err
	}
	if c.BootFiles != "" {
		daemon.api.LoadBootFiles(c.BootFiles, unread)
	}
	if c.Compat && c.BGP {
		loadGobgpFile(state, speaker.FileDir, os.Getenv("HOSTNAME"), log)
	}
	return daemon.serve(ctx)
}

// unreadBootFiles marks boot files that were not applied yet, or returns nil if they are not read.
func unreadBootFiles(c *config.Config, log *slog.Logger) *store.Unread {
	if c.BootFiles == "" {
		return &store.Unread{}
	}
	unread, err := store.MarkUnread(c.StateDir)
	if err != nil {
		log.Error("the time of the state could not be noted: boot files will look older if this start fails", "dir", c.StateDir, "error", err)
	}
	return unread
}

// loading returns the options for loading the data path.
func loading(c *config.Config, dir string, log *slog.Logger) datapath.Config {
	idleResets := 0
	if c.IdleRST {
		idleResets = idleResetRate
	}
	return datapath.Config{
		PinDir: dir, Connections: int(c.CTMax), HalfOpen: c.HalfOpen, IdleResets: idleResets, HashSeed: c.HashSeed, PortStripe: portStripe(&c.Cluster), NoRedirectPeer: !c.RedirectPeer, Hook: datapath.Hook(c.Attach),
		XDP: reconcile.XDPMode(c.XDP), EndConnections: c.EndConnections, Log: log,
	}
}

// checkUpgrade reports whether this loxilb could take over the pinned programs and maps. It changes
// nothing, so a daemon may be running.
func checkUpgrade(c datapath.Config, out io.Writer) error {
	if err := tryVectors(func() (*datapath.Datapath, error) { return datapath.Trial(trialConfig(c)) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "loxilb %s can take over: the pinned maps have its layout, the kernel accepts its programs, and %d test packets had the right results\n",
		version, len(vectors()))
	return err
}
