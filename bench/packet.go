package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/mapmemory"
	"loxilb/test/packet/lab"
)

// pathRuns is the number of runs of a path. Each run has its own connection.
const pathRuns = 300

// pathPort returns the first client port of the path with this number. A path uses pathRuns + 2
// ports: one for the first run, one for each measured run, and one for the counted run.
func pathPort(number int) int { return 33_000 + number*(pathRuns+2) }

// arriving is the number of connections that have room when a round begins. With less room, the
// table would grow during the round (growEvery in internal/kernel/datapath/connections).
const arriving = 1 << 16

// manyRuns is a number of packets of one kind that the program detects as a surge
// (bpf/filter/surge.h).
const manyRuns = 1000

// pathCost is the cost of a packet. Own is the part beyond an empty program.
type pathCost struct {
	Path        string  `json:"path"`
	Services    int     `json:"services"`
	Connections int     `json:"connections"`
	Empty       float64 `json:"empty"` // median, ns, or instructions where the clock counts those
	Own         spread  `json:"own"`   // least and most are the 10th and 90th percentile: some runs are interrupted
	Lookups     int     `json:"lookups"`
	Helpers     int     `json:"helpers"`
}

// packetResult is the result of `bench packet`.
type packetResult struct {
	Machine        machine    `json:"machine"`
	Costs          []pathCost `json:"costs"`
	Instructions   []pathCost `json:"instructions,omitempty"` // of the guest whose clock counts instructions
	FlowCosts      []flowCost `json:"rings,omitempty"`
	ConnectionSize float64    `json:"connection_bytes,omitempty"` // of kernel memory, for each of 1,000,000
}

// packetMain measures each path through the program: `bench packet [-small] [-json] [-instructions
// FILE] [-established FILE]`.
func packetMain(args []string) error {
	flags := flag.NewFlagSet("packet", flag.ContinueOnError)
	small := flags.Bool("small", false, "only with few services and connections")
	asJSON := flags.Bool("json", false, "print JSON and write no files")
	commit := flags.String("commit", commitHere(), "commit in the report")
	clock := flags.String("clock", "", "unit of the clock if it does not count time, such as instructions")
	out := flags.String("out", "bench/results", "directory for packet.txt and packet.json")
	instructions := flags.String("instructions", "", "result of a guest whose clock counts instructions: adds a column")
	established := flags.String("established", "", "output of BenchmarkEstablished: adds a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	res := packetResult{Machine: describeMachine(*commit, *clock)}
	if err := res.readOthers(*instructions, *established); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		done <- res.measure(*small)
	}()
	if err := <-done; err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(res)
	}
	return res.write(*out)
}

// readOthers reads the results of other programs.
func (res *packetResult) readOthers(instructions, established string) error {
	if instructions != "" {
		var other packetResult
		b, err := os.ReadFile(instructions)
		if err == nil {
			err = json.Unmarshal(b, &other)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", instructions, err)
		}
		res.Instructions = other.Costs
	}
	if established != "" {
		b, err := os.ReadFile(established)
		if err == nil {
			res.FlowCosts, err = parseFlowCosts(string(b))
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", established, err)
		}
	}
	return nil
}

// measure measures all paths, and the paths marked large again with more services and connections.
func (res *packetResult) measure(small bool) (err error) {
	const most = 1_000_000
	size := most + most/8
	if small {
		size = 1 << 16
	}
	l, err := lab.New(lab.Config{Connections: size})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable run-time statistics of BPF programs: %w", err)
	}
	defer stats.Close()
	p, err := findPrograms()
	if err != nil {
		return err
	}
	defer p.close()
	if err := addPathServices(l); err != nil {
		return err
	}
	if err := addServiceLines(l, protocolServices()); err != nil {
		return err
	}
	if err := res.round(l, p, 1, 1, 1); err != nil || small {
		return err
	}
	costs, err := measureCPUs(l, p)
	if err != nil {
		return err
	}
	res.Costs = append(res.Costs, costs...)
	services, connections := 0, 0
	for i, step := range [][2]int{{1000, 200_000}, {65_000, most}} {
		if err := addServices(l, services, step[0]); err != nil {
			return err
		}
		before := mapmemory.OfProcess(os.Getpid())
		if err := addConnections(l, connections, step[1]); err != nil {
			return err
		}
		res.ConnectionSize = float64(mapmemory.OfProcess(os.Getpid())-before) / float64(step[1]-connections)
		services, connections = step[0], step[1]
		// otherwise, the table would grow during the measurement
		if err := l.Datapath.MakeRoom(context.Background(), arriving); err != nil {
			return err
		}
		if err := res.round(l, p, services, connections, i+2); err != nil {
			return err
		}
	}
	return nil
}

// addPathServices adds the services of all paths.
func addPathServices(l *lab.Lab) error { return addServiceLines(l, pathServices()) }

func addServiceLines(l *lab.Lab, lines []string) error {
	for _, line := range lines {
		s, err := lb.ParseService(line)
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return fmt.Errorf("service %s: %w", line, err)
		}
	}
	return nil
}

// round measures the paths, and in rounds after the first only the paths marked large. It revokes
// the promise of a sweep: after a missed sweep, new connections visit more buckets
// (bpf/conntrack/reclaim.h).
func (res *packetResult) round(l *lab.Lab, p *programs, services, connections, round int) error {
	if err := l.Programs().ClearSweepDue(); err != nil {
		return err
	}
	for i, path := range paths() {
		if round > 1 && !path.under.includes(large) {
			continue
		}
		c, err := path.in(round).measure(l, p, pathPort(i))
		if err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
		c.Services, c.Connections = services, connections
		res.Costs = append(res.Costs, c)
	}
	c, err := measureLife(l, p, round, pathPort(len(paths())))
	if err != nil {
		return fmt.Errorf("%s: %w", lifeName, err)
	}
	c.Services, c.Connections = services, connections
	res.Costs = append(res.Costs, c)
	return l.Sweep()
}

// in returns the path with the clients of a round.
func (path path) in(round int) path {
	number := strings.NewReplacer("ROUND", strconv.Itoa(round))
	path.before = slices.Clone(path.before)
	for i := range path.before {
		path.before[i] = number.Replace(path.before[i])
	}
	path.packet = number.Replace(path.packet)
	return path
}

// measure runs a path with a series of ports.
func (path path) measure(l *lab.Lab, p *programs, port int) (c pathCost, err error) {
	c.Path = path.name
	var own, empty []float64
	for n := range pathRuns + 1 {
		link, frame, err := path.prepare(l, port+n)
		if err != nil {
			return c, err
		}
		if n == 0 { // the first run checks that the path is the intended one, and is counted
			if _, err := l.Counted(); err != nil { // resets the counters
				return c, err
			}
			res, err := l.Send(link, frame)
			if err != nil {
				return c, err
			}
			if got := strings.TrimSpace(res.Verdict + " " + res.Reason); got != path.want {
				return c, fmt.Errorf("the packet's verdict is %q, not %q", got, path.want)
			}
			// The connection is open now: the next counted one needs another port.
			if link, frame, err = path.prepare(l, port+pathRuns+1); err != nil {
				return c, err
			}
			if c.Lookups, c.Helpers, err = p.calls(frame, link.Index); err != nil {
				return c, err
			}
			continue
		}
		if path.under.includes(many) {
			if err := runOften(p.live, frame, link.Index, manyRuns); err != nil {
				return c, err
			}
		}
		e, err := timeOf(p.empty, frame, link.Index)
		if err != nil {
			return c, err
		}
		t, err := timeOf(p.live, frame, link.Index)
		if err != nil {
			return c, err
		}
		empty, own = append(empty, e), append(own, t)
	}
	c.Empty = spreadOf(empty).Median
	for i := range own {
		own[i] -= c.Empty
	}
	c.Own = innerSpread(own)
	return c, nil
}

// prepare sends the preceding packets and returns the measured one.
func (path path) prepare(l *lab.Lab, port int) (*lab.Link, []byte, error) {
	client := ""
	for _, line := range path.before {
		link, frame, err := build(l, line, port, client)
		if err != nil {
			return nil, nil, err
		}
		res, err := l.Send(link, frame)
		if err != nil {
			return nil, nil, err
		}
		if res.Verdict != "out" {
			return nil, nil, fmt.Errorf("preceding packet %q: %s %s", line, res.Verdict, res.Reason)
		}
		if link == l.Client {
			seen := pkt.Decode(res.Frame)
			from := netip.AddrPortFrom(seen.Value(pkt.Src).Addr, uint16(seen.Num(pkt.SrcPort)))
			client = from.String()
		}
	}
	return build(l, path.packet, port, client)
}

func build(l *lab.Lab, line string, port int, client string) (*lab.Link, []byte, error) {
	side, text, _ := strings.Cut(line, " ")
	link := l.Client
	if side == "server" {
		link = l.Server
	}
	text = strings.NewReplacer("PORT", strconv.Itoa(port), "CLIENT", client).Replace(text)
	p, err := pkt.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	return link, l.Arriving(link, p).Build(), nil
}

// addServices adds services number from to number to. Each has its own VIP and one endpoint.
func addServices(l *lab.Lab, from, to int) error {
	changes := make([]datapath.Change, 0, to-from)
	for n := from; n < to; n++ {
		s, err := lb.ParseService(fmt.Sprintf("20.%d.%d.%d:80/tcp endpoints=192.168.1.10:8080", n>>16, n>>8&255, n&255))
		if err != nil {
			return err
		}
		table := compile.Service(s, nil, lab.HashSeed, nil)
		changes = append(changes, datapath.Change{Key: table.Key, Table: &table})
	}
	return errors.Join(l.Datapath.Apply(changes)...)
}

// addConnections adds connections, two entries each, number from up to to. Their last packet has
// the current time, so they do not expire during the measurement.
func addConnections(l *lab.Lab, from, to int) error {
	now, err := lab.Jiffies()
	if err != nil {
		return err
	}
	const alive = uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED)
	endpoint := netip.MustParseAddr("192.168.1.10")
	vip := netip.MustParseAddr("10.0.0.1")
	entries := make([]conntrack.Entry, 0, 2*(to-from))
	for i := from; i < to; i++ {
		client := netip.AddrFrom4([4]byte{11, byte(i >> 20), byte(i >> 12), byte(i >> 4)})
		port := bpf.Port(uint16(40_000 + i&15))
		in := bpf.TcConnectionKey{Saddr: bpf.Addr(client), Daddr: bpf.Addr(vip), Sport: port, Dport: bpf.Port(80), Protocol: 6}
		back := bpf.TcConnectionKey{Saddr: bpf.Addr(endpoint), Daddr: bpf.Addr(client), Sport: bpf.Port(8080), Dport: port, Protocol: 6}
		entries = append(entries,
			conntrack.Entry{Key: in, Row: bpf.TcConnection{
				Saddr: back.Daddr, Daddr: back.Saddr, Sport: back.Dport, Dport: back.Sport, Seen: now, Flags: alive,
			}},
			conntrack.Entry{Key: back, Row: bpf.TcConnection{
				Saddr: in.Daddr, Daddr: in.Saddr, Sport: in.Dport, Dport: in.Sport, Seen: now,
				Flags: alive | uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION),
			}})
	}
	if err := l.Datapath.Fill(entries); err != nil {
		return fmt.Errorf("add connections: %w", err)
	}
	return nil
}

// innerSpread returns the median, with the 10th and 90th percentiles as least and most.
func innerSpread(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return spread{}
	}
	return spread{Median: spreadOf(v).Median, Min: v[len(v)/10], Max: v[len(v)*9/10], Rounds: len(v)}
}

// write writes packet.txt and packet.json, and shows the first.
func (res *packetResult) write(dir string) error {
	text := res.text()
	fmt.Print(text)
	b, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "packet.json"), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "packet.txt"), []byte(text), 0o644),
	)
}

func (res *packetResult) text() string {
	var b strings.Builder
	m := res.Machine
	fmt.Fprintf(&b, `Time of a packet in the program, beyond that of an empty program. Each packet is sent alone, between system calls, so
little of its data is cached. Median (10th to 90th percentile) of %d connections.

machine  %d CPUs, %s, %s; load average at the start %s
kernel   %s
commit   %s, %s
method   BPF_PROG_TEST_RUN, timed by the kernel (BPF_ENABLE_STATS); a copy of the program counts look-ups and calls of
         other helpers, except helpers that the kernel inlines
`, pathRuns, m.CPUs, m.CPU, m.Memory, m.Load, m.Kernel, m.Commit, m.Date)
	if len(res.Instructions) > 0 {
		b.WriteString("         instructions: the kernel's too; a guest whose clock counts them (make bench-packet)\n")
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "path\tservices\tconnections\tns\tinstructions\tlook-ups\thelpers")
	for _, c := range res.Costs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f (%.0f to %.0f)\t%s\t%d\t%d\n", c.Path, numberText(float64(c.Services)), numberText(float64(c.Connections)),
			c.Own.Median, c.Own.Min, c.Own.Max, res.instructions(c), c.Lookups, c.Helpers)
	}
	t.Flush()
	if len(res.Costs) > 0 {
		fmt.Fprintf(&b, "\nempty program: %.0f ns\n", res.Costs[0].Empty)
	}
	if len(res.FlowCosts) > 0 {
		b.WriteString("\nBack-to-back established packets of this many flows in turn: ns more than an empty program\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, r := range res.FlowCosts {
			fmt.Fprintf(t, "%s\t%.0f\t(empty: %.0f)\n", r.Flows, r.Own, r.Empty)
		}
		t.Flush()
		b.WriteString("\n")
	}
	if res.ConnectionSize > 0 {
		fmt.Fprintf(&b, "kernel memory of a connection: %.0f bytes\n", res.ConnectionSize)
	}
	return b.String()
}

// instructions returns the instruction counts of the same path in the guest.
func (res *packetResult) instructions(c pathCost) string {
	for _, i := range res.Instructions {
		if i.Path == c.Path && i.Services == c.Services && i.Connections == c.Connections {
			return fmt.Sprintf("%.0f", i.Own.Median)
		}
	}
	return "-"
}
