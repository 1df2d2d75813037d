package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

// countsPort is where a server reports the number of its answers.
const countsPort = 5002

// rig is the topology for one measurement: fresh namespaces, so nothing of the previous
// measurement (connections in TIME_WAIT, caches of routes, counters) affects this one.
type rig struct {
	*netnstest.Standard
	cpus     layout
	bin      string            // directory of this program, loxilb and loxicmd
	dir      string            // for files of contenders
	source   *netnstest.Host   // source of the load: the client, except for loopback
	serving  []*netnstest.Host // endpoints that are balanced over
	service  service
	table    int       // size of loxilb's connection table; 0: its default
	observe  observer  // reads the contender's table and drops
	attacker *attacker // of floods; nil without
	// daemonPid is loxilb's process; 0: another program balances.
	daemonPid int
}

// newRig builds the topology with servers for a service in as many endpoints as it asks for.
func newRig(ctx context.Context, o options, c contender, s service) (*rig, error) {
	lab, err := netnstest.New()
	if err != nil {
		return nil, err
	}
	std, err := netnstest.NewStandard(lab, netnstest.Options{MTU: o.MTU, Forwarding: c.routes})
	if err != nil {
		return nil, err
	}
	r := &rig{Standard: std, cpus: o.cpus, bin: o.bin, source: std.Client, service: s, table: o.Table, observe: c.observe}
	err = r.prepare(ctx, s, o.netns)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *rig) prepare(ctx context.Context, s service, settings [][2]string) (err error) {
	if r.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	r.Cleanup(func() { _ = os.RemoveAll(r.dir) })
	r.serving = r.Endpoints[:s.endpoints]
	for _, h := range append(r.Endpoints[:], r.Client, r.LB) {
		for _, set := range settings {
			if err := h.Sysctl(set[0], set[1]); err != nil {
				return err
			}
		}
	}
	if err := r.cpus.steer(r); err != nil {
		return err
	}
	if s.udp > 0 {
		if err := r.addAttacker(); err != nil {
			return fmt.Errorf("add the attacker: %w", err)
		}
	}
	for _, h := range r.serving {
		if err := s.serve(ctx, r, h); err != nil {
			return fmt.Errorf("serve %s in %s: %w", s.name, h.Name, err)
		}
	}
	return nil
}

// hostSettings let a client use nearly all ports, and a server accept many connections at once.
func hostSettings() [][2]string {
	return [][2]string{
		{"net/ipv4/ip_local_port_range", "1024 65535"},
		{"net/core/somaxconn", "65535"},
		{"net/ipv4/tcp_max_syn_backlog", "65535"},
	}
}

// start starts a program in a host, on the CPUs that the layout has for it.
func (r *rig) start(h *netnstest.Host, args ...string) (*netnstest.Process, error) {
	if cpus := r.cpus.cpusOf(r, h); len(cpus) > 0 {
		args = append([]string{"taskset", "-c", cpuList(cpus)}, args...)
	}
	return h.Start(netnstest.Command{Args: args})
}

// load runs a program at the source of the load until it ends, and returns its output.
func (r *rig) load(args ...string) (string, error) {
	p, err := r.start(r.source, args...)
	if err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return p.Output(), fmt.Errorf("%q: %w: %.500s", args, err, p.Output())
	}
	return p.Output(), nil
}

// serve starts this program as a server and waits until it reports its counts.
func (r *rig) serve(ctx context.Context, h *netnstest.Host, kind string, port int) error {
	p, err := r.start(h, filepath.Join(r.bin, "bench"), "serve", kind, strconv.Itoa(port), strconv.Itoa(countsPort))
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		select {
		case <-p.Done():
			return fmt.Errorf("the server ended: %s", p.Output())
		default:
		}
		_, err := r.count(ctx, h)
		return err
	})
}

// count returns the number of a server's answers.
func (r *rig) count(ctx context.Context, h *netnstest.Host) (uint64, error) {
	text, err := h.Get(ctx, fmt.Sprintf("127.0.0.1:%d", countsPort))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

func (r *rig) counts(ctx context.Context) ([]uint64, error) {
	out := make([]uint64, len(r.serving))
	for i, h := range r.serving {
		n, err := r.count(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its count: %w", h.Name, err)
		}
		out[i] = n
	}
	return out, nil
}

// retransmissions returns TCP's retransmissions in all namespaces.
func (r *rig) retransmissions() (sum uint64, err error) {
	for _, h := range append(r.Endpoints[:], r.Client, r.LB) {
		err := h.Do(func() error {
			n, err := snmp(readFile("/proc/thread-self/net/snmp"), "Tcp", "RetransSegs")
			sum += n
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("count retransmissions in %s: %w", h.Name, err)
		}
	}
	return sum, nil
}

// snmp finds a counter in the format of /proc/net/snmp: a line of names, then a line of values.
func snmp(text, group, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, group+":")
		if !ok {
			continue
		}
		if names == nil {
			names = strings.Fields(rest)
			continue
		}
		for i, v := range strings.Fields(rest) {
			if i < len(names) && names[i] == name {
				return strconv.ParseUint(v, 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("no counter %s of %s", name, group)
}

// until calls f until it returns nil. When the context ends, it returns f's last error.
func until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}
