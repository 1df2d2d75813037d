package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/test/mapmemory"
	"loxilb/test/netnstest"
	"loxilb/test/packet/lab"
)

// The largest configuration, as in test/net's tests of scale.
const (
	controlServices  = 10_000
	controlEndpoints = 10
	controlChanges   = 200
	controlStarts    = 5
	controlSweeps    = 3
)

// controlRow is one measurement.
type controlRow struct {
	What  string `json:"what"`
	Unit  string `json:"unit"` // ms, MB
	Value spread `json:"value"`
}

// controlResult is the result of `bench control`.
type controlResult struct {
	Machine machine      `json:"machine"`
	Rows    []controlRow `json:"rows"`
}

// controlMain measures the control plane: `bench control [-out DIR]`.
func controlMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("control", flag.ContinueOnError)
	out := flags.String("out", "bench/results", "directory for control.txt and control.json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	res := controlResult{Machine: describeMachine(commitHere(), "")}
	if err := res.daemon(ctx, filepath.Dir(self)); err != nil {
		return err
	}
	if err := res.measureSweep(ctx); err != nil {
		return err
	}
	return res.write(*out)
}

func (res *controlResult) add(what, unit string, values ...float64) {
	res.Rows = append(res.Rows, controlRow{what, unit, spreadOf(values)})
}

// daemon measures a daemon from its start to many services.
func (res *controlResult) daemon(ctx context.Context, bin string) (err error) {
	l, err := netnstest.New()
	if err != nil {
		return err
	}
	std, err := netnstest.NewStandard(l, netnstest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, std.Close()) }()
	d, err := res.measureStarts(ctx, std, bin)
	if err != nil {
		return err
	}
	c := control{ctx: ctx, client: &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{DialContext: std.LB.DialContext}}}
	res.measureMemory("no service", d)
	res.measureChanges(&c, "one service alone: ")
	body, err := json.Marshal(v1.LoadbalanceRequest{LbAttr: controlEntries(controlServices)})
	if err != nil {
		return err
	}
	many := fmt.Sprintf("%s services of %d endpoints: ", numberText(controlServices), controlEndpoints)
	res.add(many+"one request with all of them", "ms", c.call(http.MethodPost, "config/loadbalancer", body))
	res.measureMemory(strings.TrimSuffix(many, ": "), d)
	res.measureChanges(&c, "one service among these: ")
	res.add(many+"list all", "ms", c.call(http.MethodGet, "config/loadbalancer/all", nil))
	res.add(many+"metrics", "ms", c.call(http.MethodGet, "metrics", nil))
	d.Stop()
	start := time.Now()
	if err := d.Start(ctx); err != nil {
		return err
	}
	res.add(many+"restart of the daemon, until it answers", "ms", milliseconds(time.Since(start)))
	res.add(many+"delete all", "ms", c.call(http.MethodDelete, "config/loadbalancer/all", nil))
	return c.err
}

// measureStarts starts a daemon without stored state several times, and returns the last one,
// still running.
func (res *controlResult) measureStarts(ctx context.Context, std *netnstest.Standard, bin string) (d *netnstest.Daemon, err error) {
	var took []float64
	for range controlStarts {
		if d != nil {
			if err := d.DetachAll(); err != nil {
				return nil, err
			}
		}
		start := time.Now()
		if d, err = std.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: bin}); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(start)))
	}
	res.add("start of the daemon, until it answers and four interfaces are attached", "ms", took...)
	return d, nil
}

// measureMemory measures the memory of the daemon and of its maps in the kernel.
func (res *controlResult) measureMemory(when string, d *netnstest.Daemon) {
	status := field(readFile(fmt.Sprintf("/proc/%d/status", d.Pid())), "VmRSS")
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(status, " kB"), 64); err == nil {
		res.add(when+": memory of the daemon", "MB", kb/1024)
	}
	res.add(when+": memory of its maps", "MB", float64(mapmemory.OfProcess(d.Pid()))/(1<<20))
}

// measureChanges creates, updates and deletes one service.
func (res *controlResult) measureChanges(c *control, what string) {
	entry := controlEntry(controlServices + 1)
	fewer := entry
	fewer.Endpoints = entry.Endpoints[1:]
	request := func(e v1.LoadbalanceEntry) []byte {
		b, err := json.Marshal(v1.LoadbalanceRequest{ServiceArguments: &e.ServiceArguments, Endpoints: e.Endpoints})
		c.err = errors.Join(c.err, err)
		return b
	}
	path := fmt.Sprintf("config/loadbalancer/externalipaddress/%s/port/80/protocol/tcp", entry.ServiceArguments.ExternalIP)
	var create, update, remove []float64
	for range controlChanges {
		create = append(create, c.call(http.MethodPost, "config/loadbalancer", request(entry)))
		update = append(update, c.call(http.MethodPost, "config/loadbalancer", request(fewer)))
		remove = append(remove, c.call(http.MethodDelete, path, nil))
	}
	res.Rows = append(res.Rows, controlRow{what + "create", "ms", innerSpread(create)},
		controlRow{what + "update", "ms", innerSpread(update)}, controlRow{what + "delete", "ms", innerSpread(remove)})
}

// measureSweep measures a sweep of 1,000,000 living connections.
func (res *controlResult) measureSweep(ctx context.Context) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the namespace ends with the thread
		done <- func() (err error) {
			l, err := lab.New(lab.Config{Connections: heldConnections})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			if err := addConnections(l, 0, heldConnections); err != nil {
				return err
			}
			var whole, slice []float64
			for range controlSweeps {
				if err := l.Datapath.Sweep(ctx); err != nil {
					return err
				}
				whole = append(whole, milliseconds(l.Datapath.Swept().Last))
				slice = append(slice, milliseconds(l.Datapath.Swept().Longest))
			}
			if n := l.Datapath.Swept().Ended; n > 0 {
				return fmt.Errorf("the sweep ended %d of the connections, which are alive", n)
			}
			res.add("sweep of 1,000,000 living connections: CPU time", "ms", whole...)
			res.add("sweep of 1,000,000 living connections: longest slice", "ms", slice...)
			return nil
		}()
	}()
	return <-done
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// control calls a daemon's API. After the first error, which it keeps, calls do nothing.
type control struct {
	ctx    context.Context
	client *http.Client
	err    error
}

// call makes a request and returns how long it took, in milliseconds.
func (c *control) call(method, path string, body []byte) float64 {
	if c.err != nil {
		return 0
	}
	req, err := http.NewRequestWithContext(c.ctx, method, "http://127.0.0.1:11111/netlox/v1/"+path, bytes.NewReader(body))
	if err != nil {
		c.err = err
		return 0
	}
	start := time.Now()
	resp, err := c.client.Do(req)
	if err != nil {
		c.err = err
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(start)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, text)
	}
	c.err = err
	return milliseconds(took)
}

func controlEntries(n int) (out []v1.LoadbalanceEntry) {
	for i := range n {
		out = append(out, controlEntry(i))
	}
	return out
}

func controlEntry(n int) v1.LoadbalanceEntry {
	e := v1.LoadbalanceEntry{ServiceArguments: v1.ServiceArguments{
		ExternalIP: fmt.Sprintf("20.%d.%d.%d", n>>16, n>>8&255, n&255), Port: 80, Protocol: "tcp", Name: "service-" + strconv.Itoa(n),
	}}
	for i := range controlEndpoints {
		e.Endpoints = append(e.Endpoints, v1.Endpoint{
			EndpointIP: fmt.Sprintf("31.31.31.%d", 1+(n+i)%250), TargetPort: 8080 + i, Weight: new(1),
		})
	}
	return e
}

// write writes control.txt and control.json, and prints the text.
func (res *controlResult) write(dir string) error {
	var b strings.Builder
	m := res.Machine
	fmt.Fprintf(&b, "Cost of configuration requests over the REST API: median (minimum to maximum; for series of %d changes, 10th to 90th percentile).\n\n", controlChanges)
	fmt.Fprintf(&b, "machine  %d CPUs, %s, %s; load average at the start %s\nkernel   %s\ncommit   %s, %s\n\n", m.CPUs, m.CPU, m.Memory, m.Load, m.Kernel, m.Commit, m.Date)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range res.Rows {
		values := numberText(r.Value.Median)
		if r.Value.Rounds > 1 {
			values += fmt.Sprintf(" (%s to %s)", numberText(r.Value.Min), numberText(r.Value.Max))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.What, values, r.Unit)
	}
	t.Flush()
	fmt.Print(b.String())
	text, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "control.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "control.txt"), []byte(b.String()), 0o644),
	)
}
