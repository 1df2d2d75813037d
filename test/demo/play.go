package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

// The service of the demo.
const (
	vip       = "20.20.20.1:2020"
	endpoints = "31.31.31.1:1,32.32.32.1:1,17.17.17.1:1"
	rounds    = 3 // number of requests to each endpoint
)

// play runs the demo from the servers to the last table.
func (d *demo) play(ctx context.Context) error {
	if err := d.startServers(ctx); err != nil {
		return err
	}
	if err := d.startBalancer(ctx); err != nil {
		return err
	}
	say("One service, by the command line")
	if err := d.loxicmd("create", "lb", "20.20.20.1", "--tcp=2020:5001", "--endpoints="+endpoints); err != nil {
		return err
	}
	say("Requests of the client to http://%s/", vip)
	if err := d.request(ctx); err != nil {
		return errors.Join(err, d.logged())
	}
	say("What the balancer says")
	if err := d.loxicmd("get", "lb", "-o", "wide"); err != nil {
		return err
	}
	fmt.Println()
	return d.loxicmd("get", "ct")
}

// startServers starts a web server in each endpoint and waits until it answers there.
func (d *demo) startServers(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, h := range d.Endpoints {
		_, err := h.Start(netnstest.Command{Args: []string{self, "serve", h.Name, ":5001"}, Detach: d.keep})
		if err != nil {
			return err
		}
	}
	for _, h := range d.Endpoints {
		for {
			_, err := h.Get(ctx, "127.0.0.1:5001")
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the server of %s does not answer: %w", h.Name, err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

func (d *demo) startBalancer(ctx context.Context) error {
	say("The balancer")
	err := os.MkdirAll(d.dir, 0o755)
	if err == nil {
		d.log, err = os.Create(filepath.Join(d.dir, "loxilb.log"))
	}
	if err != nil {
		return fmt.Errorf("open the balancer's log: %w", err)
	}
	fmt.Println("lb$ loxilb &")
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	d.daemon, err = d.LB.StartDaemon(ctx, netnstest.DaemonOptions{
		Bin: d.bin, Dir: d.dir, Args: d.args, Detach: d.keep, Output: d.log,
	})
	return err
}

// loxicmd shows and runs a command line in the balancer's namespace.
func (d *demo) loxicmd(args ...string) error {
	fmt.Println("lb$ loxicmd " + strings.Join(args, " "))
	out, err := d.daemon.Command(args...)
	if err != nil {
		return errors.Join(err, d.logged())
	}
	fmt.Println(strings.TrimRight(out, "\n"))
	return nil
}

// request sends requests and prints the endpoint that answered each. It fails if their order is not
// the expected one.
func (d *demo) request(ctx context.Context) error {
	var want []string
	for _, e := range strings.Split(endpoints, ",") {
		want = append(want, strings.TrimSuffix(e, ":1"))
	}
	for i := range rounds * len(want) {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		who, err := d.Client.Get(ctx, vip)
		cancel()
		if err != nil {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
		fmt.Printf("    request %d answered by %s\n", i+1, who)
		if !strings.Contains(who, want[i%len(want)]+" ") {
			return fmt.Errorf("request %d: want %s by round robin, in the order of --endpoints", i+1, want[i%len(want)])
		}
	}
	fmt.Println("    strictly round robin, in the order written")
	return nil
}

// logged returns the balancer's log as an error's text.
func (d *demo) logged() error {
	if d.daemon == nil {
		return nil
	}
	return fmt.Errorf("the balancer's log:\n%s", d.daemon.Log())
}

func (d *demo) printHowToPlay() {
	say("The demo keeps running. Try these commands as root:")
	for _, line := range []string{
		"ip netns exec " + d.Client.Namespace + " curl http://" + vip + "/",
		"ip netns exec " + d.LB.Namespace + " " + filepath.Join(d.bin, "loxicmd") + " get ct",
		"ip netns exec " + d.LB.Namespace + " " + filepath.Join(d.bin, "loxicmd") +
			" create lb 20.20.20.2 --tcp=80:5001 --select=priority --endpoints=31.31.31.1:5,32.32.32.1:3,17.17.17.1:2",
		"ip netns exec " + d.Client.Namespace + " curl http://20.20.20.2/",
		"less " + d.log.Name(),
	} {
		fmt.Println("    " + line)
	}
	fmt.Println("and remove it:")
	fmt.Println("    " + filepath.Join(d.bin, "demo") + " -remove")
}

// serve answers every HTTP request with the name of the server and the address it came to, until
// the end.
func serve(ctx context.Context, name, address string) error {
	s := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
			remote, _, _ := net.SplitHostPort(r.RemoteAddr)
			_, _ = fmt.Fprintf(w, "%v (%s), which sees the client as %s\n", local.IP, name, remote)
		})}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
