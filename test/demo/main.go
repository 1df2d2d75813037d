// Command demo runs loxilb with a client and three servers, each in its own network namespace.
// `make demo` builds and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"loxilb/test/netnstest"
)

// keptName is the name of the namespaces and files that `make demo KEEP=1` keeps.
const keptName = "loxilb-demo"

// How long the start of the balancer and the whole demo may take. They take a second or two; under
// software emulation, the kernel's check of the programs alone takes half a minute.
const (
	startPatience = 2 * time.Minute
	patience      = 5 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted; everything is removed")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "serve" {
		return serve(ctx, args[1], args[2])
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	mtu := flags.Int("mtu", 1500, "MTU of every link")
	attach := flags.String("attach", "auto", "how the balancer attaches its programs: auto, tcx or clsact")
	xdp := flags.String("xdp", "auto", "mode of the XDP program: auto, native, generic or off")
	keep := flags.Bool("keep", false, "leave it standing")
	remove := flags.Bool("remove", false, "remove what -keep left, and nothing else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and BPF need root")
	}
	if *remove {
		return removeKept()
	}
	if err := removeKept(); err != nil { // its addresses would not conflict, but two demos would confuse users
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d, err := newDemo(*mtu, *keep, "--attach", *attach, "--xdp", *xdp)
	if err != nil {
		return err
	}
	err = d.play(ctx)
	if err == nil && *keep {
		d.printHowToPlay()
		return nil
	}
	return errors.Join(err, d.close())
}

func removeKept() error {
	return errors.Join(netnstest.Remove(keptName), netnstest.RemoveDaemonFiles(filepath.Join("/run", keptName)))
}

// demo is one run.
type demo struct {
	*netnstest.Standard
	bin    string // directory of this program, loxilb and loxicmd
	dir    string // the daemon's files
	keep   bool
	args   []string // of the daemon
	log    *os.File
	daemon *netnstest.Daemon
}

func newDemo(mtu int, keep bool, args ...string) (*demo, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &demo{bin: filepath.Dir(self), keep: keep, args: args}
	var lab *netnstest.Lab
	if keep {
		d.dir = filepath.Join("/run", keptName)
		lab, err = netnstest.NewNamed(keptName)
	} else {
		d.dir = filepath.Join("/run", fmt.Sprintf("%s-%d", keptName, os.Getpid()))
		lab, err = netnstest.New()
	}
	if err != nil {
		return nil, err
	}
	say("Five namespaces: client, lb, ep1, ep2, ep3; links of MTU %d", mtu)
	d.Standard, err = netnstest.NewStandard(lab, netnstest.Options{MTU: mtu})
	if err != nil {
		return nil, err
	}
	for i, n := range netnstest.StandardNetworks() {
		what := "the client"
		if i > 0 {
			what = "a web server on :5001"
		}
		fmt.Printf("    %-7s %-14v behind the balancer's interface %-7s %s\n", n.Host, n.V4.Addr(), n.Host, what)
	}
	return d, nil
}

// close removes everything, also after Ctrl-C.
func (d *demo) close() error {
	err := d.Close()
	if d.log != nil {
		_ = d.log.Close()
	}
	return errors.Join(err, netnstest.RemoveDaemonFiles(d.dir))
}

// say prints a headline.
func say(format string, args ...any) { fmt.Printf("\n== "+format+"\n", args...) }
