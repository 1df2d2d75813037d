package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"loxilb/test/packet/lab"
)

// path is a path through the program: a packet, after packets that create the state it needs. In
// lines, ROUND and PORT vary the client in each run, and CLIENT is the client as the endpoint sees
// it.
type path struct {
	name   string
	before []string // link, packet
	packet string   // link, packet
	want   string   // out, pass or drop REASON
	under  circumstances
}

// circumstances are flags of the conditions under which a path is measured.
type circumstances uint8

const small circumstances = 0 // with one service of each kind and few connections
const (
	large    circumstances = 1 << iota // also among many services and connections
	many                               // while many packets of this kind arrive
	extended                           // with the services of protocolServices
)

// includes reports whether a flag is set.
func (c circumstances) includes(flag circumstances) bool { return c&flag != 0 }

// pathServices returns the services of all paths, one of each kind.
func pathServices() []string {
	return []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080",
		"10.0.0.20:80/tcp endpoints=192.168.1.11:8080",
		"10.0.0.1:53/udp endpoints=192.168.1.10:5353",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:2::10]:8080",
		"[2001:db8::1]:53/udp endpoints=[2001:db8:2::10]:5353",
		"10.0.0.2:80/tcp mode=onearm endpoints=192.168.1.10:8080",
		"10.0.0.3:80/tcp mode=fullnat endpoints=192.168.1.10:8080",
		"10.0.0.4:80/tcp endpoints=192.168.1.10:8080:0",
		"10.0.0.5:80/tcp endpoints=192.168.1.10:8080 sources=9.0.0.0/8",
		"10.0.0.6:8000-8999/tcp endpoints=192.168.1.10:8080",
		"10.0.0.7:80/tcp select=hash endpoints=192.168.1.10:8080,192.168.1.11:8080,192.168.1.12:8080",
		"10.0.0.8:80/tcp select=persist endpoints=192.168.1.10:8080,192.168.1.11:8080,192.168.1.12:8080",
		"10.0.0.9:80/tcp select=lc endpoints=192.168.1.10:8080,192.168.1.11:8080,192.168.1.12:8080",
		"10.0.0.11:80/tcp syn-protect=always endpoints=192.168.1.10:8080",
		"[2001:db8::11]:80/tcp syn-protect=always endpoints=[2001:db8:2::10]:8080",
		"10.0.0.12:80/tcp proxy-protocol=true endpoints=192.168.1.10:8080",
		"10.0.0.10:80/tcp select=random endpoints=192.168.1.10:8080,192.168.1.11:8080,192.168.1.12:8080",
	}
}

const client4, client6 = "1.1.ROUND.1:PORT", "[2001:db8:100::ROUND]:PORT"

// handshake opens a connection to a VIP with a fixed endpoint.
func handshake(client, vip, endpoint string) []string {
	return []string{
		"client tcp " + client + " > " + vip + " S seq 1000",
		"server tcp " + endpoint + " > CLIENT SA seq 5000 ack 1001",
		"client tcp " + client + " > " + vip + " A seq 1001 ack 5001",
	}
}

func paths() []path {
	const (
		vip4, ep4 = "10.0.0.1:80", "192.168.1.10:8080"
		vip6, ep6 = "[2001:db8::1]:80", "[2001:db8:2::10]:8080"
		data      = " A seq 1001 ack 5001 len 100"
		reply     = " > CLIENT A seq 5001 ack 1001 len 100"
	)
	to := func(client, vip, rest string) string { return "client tcp " + client + " > " + vip + rest }
	open4, open6 := handshake(client4, vip4, ep4), handshake(client6, vip6, ep6)
	closing := append(open4[:3:3], to(client4, vip4, " FA seq 1001 ack 5001"), "server tcp "+ep4+" > CLIENT FA seq 5001 ack 1002")
	out := []path{
		{"established, IPv4", open4, to(client4, vip4, data), "out", large},
		{"established, IPv6", open6, to(client6, vip6, data), "out", large},
		{"reply, IPv4", open4, "server tcp " + ep4 + reply, "out", large},
		{"reply, IPv6", open6, "server tcp " + ep6 + reply, "out", small},
		{"FIN", open4, to(client4, vip4, " FA seq 1001 ack 5001"), "out", small},
		{"UDP, established", []string{"client udp " + client4 + " > 10.0.0.1:53 len 20", "server udp 192.168.1.10:5353 > CLIENT len 20"},
			"client udp " + client4 + " > 10.0.0.1:53 len 20", "out", small},
		{"new connection (SYN), IPv4", nil, to(client4, vip4, " S seq 1000"), "out", large},
		{"new connection (SYN), IPv6", nil, to(client6, vip6, " S seq 1000"), "out", small},
		{"new connection (SYN) from the port of a closed one, IPv4", append(open4[:1:1], "server tcp "+ep4+" > CLIENT RA seq 0 ack 1001"),
			to(client4, vip4, " S seq 9000"), "out", small},
		{"challenged SYN, IPv4", nil, to("1.2.ROUND.1:PORT", "10.0.0.11:80", " S seq 1000 opt mss:1460,sackok,ts:1:0,nop,ws:7"), "out challenged", large},
		{"challenged SYN, IPv6", nil, to("[2001:db8:200::ROUND]:PORT", "[2001:db8::11]:80", " S seq 1000 opt mss:1440,sackok,ts:1:0,nop,ws:7"), "out challenged", large},
		{"SYN+ACK", open4[:1], strings.TrimSpace(open4[1]), "out", small},
		{"ACK of the handshake", open4[:2], open4[2], "out", small},
		{"ACK of the last FIN", closing, to(client4, vip4, " A seq 1002 ack 5002"), "out", small},
		{"new connection, UDP", nil, "client udp " + client4 + " > 10.0.0.1:53 len 20", "out", small},
		{"new connection, range of ports", nil, to(client4, "10.0.0.6:8080", " S seq 1000"), "out", small},
	}
	for _, a := range [][2]string{{"hash", "10.0.0.7"}, {"persist", "10.0.0.8"}, {"lc", "10.0.0.9"}, {"random", "10.0.0.10"}} {
		out = append(out, path{"new connection, " + a[0], nil, to(client4, a[1]+":80", " S seq 1000"), "out", small})
	}
	for _, m := range [][2]string{{"onearm", "10.0.0.2:80"}, {"fullnat", "10.0.0.3:80"}} {
		out = append(out,
			path{m[0] + ": established", handshake(client4, m[1], ep4), to(client4, m[1], data), "out", small},
			path{m[0] + ": reply", handshake(client4, m[1], ep4), "server tcp " + ep4 + reply, "out", small},
			path{m[0] + ": new connection", nil, to(client4, m[1], " S seq 1000"), "out", small},
		)
	}
	proxied := handshake(client4, "10.0.0.12:80", ep4)
	acknowledged := append(proxied[:3:3], "server tcp "+ep4+" > CLIENT A seq 5001 ack 1029")
	out = append(out,
		path{"PROXY protocol: established", acknowledged, to(client4, "10.0.0.12:80", data), "out", small},
		path{"PROXY protocol: reply", acknowledged, "server tcp " + ep4 + " > CLIENT A seq 5001 ack 1029 len 100", "out", small},
		path{"PROXY protocol: ACK that brings the header", proxied[:2], proxied[2], "out", small},
		path{"PROXY protocol: first data", proxied, to(client4, "10.0.0.12:80", data), "out", small},
		path{"passed on: of no service", nil, to(client4, "9.9.9.9:80", data), "pass", large},
		path{"passed on: no service, amid many such", nil, to(client4, "9.9.9.9:80", data), "pass", large | many},
		path{"passed on: another port of a VIP", nil, to(client4, "10.0.0.1:81", data), "pass", small},
		path{"refused: no-endpoint", nil, to(client4, "10.0.0.4:80", " S"), "out no-endpoint", small},
		path{"refused: no-connection", nil, to(client4, vip4, data), "out no-connection", small},
		path{"drop source-not-allowed", nil, to(client4, "10.0.0.5:80", " S"), "drop source-not-allowed", small},
		path{"drop martian-source", nil, to("127.0.0.1:PORT", vip4, " S"), "drop martian-source", small},
		path{"drop malformed", nil, to(client4, vip4, " S doff 4"), "drop malformed", small},
		path{"answered: ttl-expired", nil, to(client4, vip4, " S ttl 1"), "out ttl-expired", small},
		path{"drop fragment", nil, "client ip 1.1.ROUND.1 > 10.0.0.1 proto 17 ipid PORT frag 2960 len 1040", "drop fragment", small},
		path{"drop udp-zero-checksum", nil, "client udp " + client6 + " > [2001:db8::1]:53 len 4 csum zero", "drop udp-zero-checksum", small},
		path{"drop routing-header", nil, to(client6, vip6, " S ext rt:0"), "drop routing-header", small},
	)
	return append(out, protocolPaths(to)...)
}

// lifeName names the row of a whole connection.
const lifeName = "life of a connection of 10 packets, IPv4"

// life returns a connection from its SYN to the last ACK: a request of 100 bytes and its answer.
func life() []string {
	const client, vip, endpoint = client4, "10.0.0.1:80", "192.168.1.10:8080"
	to, back := "client tcp "+client+" > "+vip, "server tcp "+endpoint+" > "+client
	return []string{
		to + " S seq 1000",
		back + " SA seq 5000 ack 1001",
		to + " A seq 1001 ack 5001",
		to + " PA seq 1001 ack 5001 len 100",
		back + " A seq 5001 ack 1101",
		back + " PA seq 5001 ack 1101 len 100",
		to + " A seq 1101 ack 5101",
		to + " FA seq 1101 ack 5101",
		back + " FA seq 5101 ack 1102",
		to + " A seq 1102 ack 5102",
	}
}

// measureLife runs whole connections in sequence, each from its first packet to the last.
func measureLife(l *lab.Lab, p *programs, round, port int) (pathCost, error) {
	c := pathCost{Path: lifeName}
	lines := life()
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, "ROUND", strconv.Itoa(round))
	}
	if err := checkLife(l, lines, port+pathRuns+1); err != nil {
		return c, err
	}
	var own, empty []float64
	for n := range pathRuns + 1 {
		var sum float64
		for _, line := range lines {
			link, frame, err := build(l, line, port+n, "")
			if err != nil {
				return c, err
			}
			if n == 0 { // the first is counted
				lookups, helpers, err := p.calls(frame, link.Index)
				if err != nil {
					return c, err
				}
				c.Lookups, c.Helpers = c.Lookups+lookups, c.Helpers+helpers
				continue
			}
			e, err := timeOf(p.empty, frame, link.Index)
			if err != nil {
				return c, err
			}
			t, err := timeOf(p.live, frame, link.Index)
			if err != nil {
				return c, err
			}
			empty, sum = append(empty, e), sum+t
		}
		if n > 0 {
			own = append(own, sum)
		}
	}
	c.Empty = spreadOf(empty).Median * float64(len(lines))
	for i := range own {
		own[i] -= c.Empty
	}
	c.Own = innerSpread(own)
	return c, nil
}

// checkLife runs a connection and fails unless each of its packets goes out.
func checkLife(l *lab.Lab, lines []string, port int) error {
	for _, line := range lines {
		link, frame, err := build(l, line, port, "")
		if err != nil {
			return err
		}
		res, err := l.Send(link, frame)
		if err != nil {
			return err
		}
		if res.Verdict != "out" {
			return fmt.Errorf("%q: got %s %s, want the packet to go out", line, res.Verdict, res.Reason)
		}
	}
	return nil
}

// cpuRuns is the number of connections that each CPU opens, cpuRounds the number of rounds.
const (
	cpuRuns   = 2000
	cpuRounds = 9
)

// measureCPUs opens connections on one CPU and on two at once, to one service or to a service each.
// The additional cost of two is contention for cache lines. Results are means, as the kernel sums
// the time of all CPUs.
func measureCPUs(l *lab.Lab, p *programs) ([]pathCost, error) {
	const first, second = "10.0.0.1:80", "10.0.0.20:80"
	cases := []struct {
		name string
		vips []string
	}{
		{"new connection (SYN), one CPU, mean", []string{first}},
		{"... two CPUs at once, one service", []string{first, first}},
		{"... two CPUs at once, a service each", []string{first, second}},
	}
	costs := make([]pathCost, len(cases))
	took := make([][]float64, len(cases))
	client := 0
	for range cpuRounds {
		for i, c := range cases {
			t, err := openOnCPUs(l, p, c.vips, &client)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			took[i] = append(took[i], t)
		}
	}
	for i, c := range cases {
		costs[i] = pathCost{Path: c.name, Services: 1, Connections: 1, Own: spreadOf(took[i])}
	}
	return costs, nil
}

// openOnCPUs opens connections on one CPU for each VIP, all at once, and returns the time of a
// connection in nanoseconds.
func openOnCPUs(l *lab.Lab, p *programs, vips []string, client *int) (float64, error) {
	var frames [][][]byte
	ifindex := 0
	for _, vip := range vips {
		var own [][]byte
		for range cpuRuns {
			*client++
			n := *client
			link, frame, err := build(l, fmt.Sprintf("client tcp 9.%d.%d.%d:%d > %s S seq 1000", n>>16&255, n>>8&255, n&255, 33_000+n%30_000, vip), 0, "")
			if err != nil {
				return 0, err
			}
			own, ifindex = append(own, frame), link.Index
		}
		frames = append(frames, own)
	}
	before, err := p.live.Stats()
	if err != nil {
		return 0, err
	}
	space, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return 0, err
	}
	defer space.Close()
	var running sync.WaitGroup
	errs := make([]error, len(frames))
	for cpu := range frames {
		running.Go(func() { errs[cpu] = onCPU(cpu, space, func() error { return runAll(p, frames[cpu], ifindex) }) })
	}
	running.Wait()
	after, err := p.live.Stats()
	if err = errors.Join(append(errs, err)...); err != nil {
		return 0, err
	}
	return float64((after.Runtime - before.Runtime).Nanoseconds()) / float64(after.RunCount-before.RunCount), nil
}

func runAll(p *programs, frames [][]byte, ifindex int) error {
	for _, frame := range frames {
		if err := runOnce(p.live, frame, ifindex); err != nil {
			return err
		}
	}
	return nil
}

// onCPU runs something on a CPU and in a network namespace.
func onCPU(cpu int, space *os.File, run func() error) error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace: %w", err)
	}
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("stay on CPU %d: %w", cpu, err)
	}
	return run()
}
