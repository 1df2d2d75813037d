package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
)

// protocolServices returns the services of SCTP, QUIC, FTP and TFTP.
func protocolServices() []string {
	return []string{
		"10.0.0.13:80/sctp endpoints=192.168.1.10:8080",
		"10.0.0.14:443/udp select=quic endpoints=192.168.1.10:8443:1#c4605e,192.168.1.11:8443:1#c4605f",
		"10.0.0.15:443/udp select=quic quic=0:4:8f95f09245765f80256934e50c66207f endpoints=192.168.1.11:8443:1#ed793b,192.168.1.10:8443:1#ed793a",
		"10.0.0.16:21/tcp helper=ftp endpoints=192.168.1.10:2121",
		"10.0.0.17:69/udp helper=tftp endpoints=192.168.1.10:69",
	}
}

// protocolPaths returns the paths of SCTP, QUIC, FTP and TFTP.
func protocolPaths(to func(client, vip, rest string) string) []path {
	const (
		sctp      = "10.0.0.13:80"
		sctpReply = "server sctp 192.168.1.10:8080 > CLIENT tag 111 chunks "
		plaintext = " data 4007c4605e4504cc4f0000000000000000"
		encrypted = " data 400720b1d07b359d3c0000000000000000"
		pasv      = "32323720456e746572696e672050617373697665204d6f646520283139322c3136382c312c31302c3131372c3438292e0d0a"
	)
	sctpTo := func(rest string) string { return "client sctp " + client4 + " > " + sctp + rest }
	udpTo := func(vip, rest string) string { return "client udp " + client4 + " > " + vip + rest }
	association := []string{
		sctpTo(" chunks init=111"), sctpReply + "init-ack=222:40", sctpTo(" tag 222 chunks cookie-echo:40"), sctpReply + "cookie-ack",
	}
	control := append(handshake(client4, "10.0.0.16:21", "192.168.1.10:2121"),
		to(client4, "10.0.0.16:21", " PA seq 1001 ack 5001 data 504153560d0a"))
	open := handshake(client4, "10.0.0.1:80", "192.168.1.10:8080")
	return []path{
		{"SYN+ACK, while a service has the helper of FTP", open[:1], open[1], "out", extended},
		{"ACK of the handshake, while a service has the helper of FTP", open[:2], open[2], "out", extended},
		{
			"SCTP: established, 100 bytes",
			association, sctpTo(" tag 222 chunks data:100"),
			"out", extended,
		},
		{
			"SCTP: established, 1,400 bytes",
			association, sctpTo(" tag 222 chunks data:1400"),
			"out", extended,
		},
		{"SCTP: reply", association, sctpReply + "sack:12", "out", extended},
		{"SCTP: new association (INIT)", nil, association[0], "out", extended},
		{"SCTP: INIT ACK", association[:1], association[1], "out", extended},
		{"SCTP: COOKIE ECHO", association[:2], association[2], "out", extended},
		{
			"QUIC: established",
			[]string{udpTo("10.0.0.14:443", plaintext), "server udp 192.168.1.10:8443 > CLIENT len 20"},
			udpTo("10.0.0.14:443", plaintext),
			"out", extended,
		},
		{
			"QUIC: new flow, connection ID in plaintext",
			nil, udpTo("10.0.0.14:443", plaintext),
			"out", extended,
		},
		{
			"QUIC: new flow, encrypted connection ID",
			nil, udpTo("10.0.0.15:443", encrypted),
			"out", extended,
		},
		{
			"FTP: control connection, a line of the client",
			control[:3], control[3],
			"out", extended,
		},
		{
			"FTP: reply to PASV",
			control, "server tcp 192.168.1.10:2121 > CLIENT PA seq 5001 ack 1007 data " + pasv,
			"out", extended,
		},
		{
			"TFTP: request",
			nil, udpTo("10.0.0.17:69", " data 00016600006f6374657400"),
			"out", extended,
		},
		{
			"TFTP: first answer, from a new port",
			[]string{udpTo("10.0.0.17:69", " data 00016600006f6374657400")},
			"server udp 192.168.1.10:50000 > CLIENT data 0003000141",
			"out", extended,
		},
	}
}

// comparison is a protocol's path next to that of plain TCP or UDP.
type comparison struct{ path, plain string }

// comparisons returns the rows of `bench protocols`.
func comparisons() []comparison {
	const established, reply, syn, udp, datagram = "established, IPv4", "reply, IPv4", "new connection (SYN), IPv4", "UDP, established", "new connection, UDP"
	return []comparison{
		{"SCTP: established, 100 bytes", established},
		{"SCTP: established, 1,400 bytes", established},
		{"SCTP: reply", reply},
		{"SCTP: new association (INIT)", syn},
		{"SCTP: INIT ACK", "SYN+ACK"},
		{"SCTP: COOKIE ECHO", "ACK of the handshake"},
		{"PROXY protocol: established", established}, {"PROXY protocol: reply", reply},
		{"PROXY protocol: ACK that brings the header", "ACK of the handshake"},
		{"PROXY protocol: first data", established},
		{"QUIC: established", udp},
		{"QUIC: new flow, connection ID in plaintext", datagram},
		{"QUIC: new flow, encrypted connection ID", datagram},
		{"SYN+ACK, while a service has the helper of FTP", "SYN+ACK"},
		{"ACK of the handshake, while a service has the helper of FTP", "ACK of the handshake"},
		{"FTP: control connection, a line of the client", established},
		{"FTP: reply to PASV", reply},
		{"TFTP: request", datagram}, {"TFTP: first answer, from a new port", datagram},
	}
}

// protocolsMain writes the exact cost of each protocol's packets, next to plain TCP and UDP: `bench
// protocols [-out DIRECTORY]`.
func protocolsMain(args []string) error {
	flags := flag.NewFlagSet("protocols", flag.ContinueOnError)
	out := flags.String("out", "bench/results", "directory for protocols.txt")
	if err := flags.Parse(args); err != nil {
		return err
	}
	done := make(chan error)
	var text string
	go func() {
		runtime.LockOSThread() // for good: the namespace ends with the thread
		var err error
		text, err = protocolCosts()
		done <- err
	}()
	if err := <-done; err != nil {
		return err
	}
	fmt.Print(text)
	return errors.Join(os.MkdirAll(*out, 0o755), os.WriteFile(filepath.Join(*out, "protocols.txt"), []byte(text), 0o644))
}

func protocolCosts() (text string, err error) {
	p, err := newProfiler()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	costs := map[string]profiled{}
	for i, path := range paths() {
		if path.under.includes(many) {
			continue
		}
		if costs[path.name], err = p.fewest(path, i); err != nil {
			return "", fmt.Errorf("%s: %w", path.name, err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "What a packet costs, next to plain TCP or UDP: BPF instructions, look-ups in maps, and calls of other helpers.\n"+
		"They are exact, and the same on any machine. Commit %s.\n\n", commitHere())
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "path\tinstructions\tlook-ups\thelpers\tplain\tinstructions\tlook-ups\thelpers\tratio")
	for _, c := range comparisons() {
		a, plain := costs[c.path], costs[c.plain]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%.2f\n", c.path, a.total, a.lookups, a.helpers, c.plain, plain.total, plain.lookups, plain.helpers,
			float64(a.total)/float64(plain.total))
	}
	if err := t.Flush(); err != nil {
		return "", err
	}
	gtp, err := gtpCosts()
	b.WriteString("\nGTP-U: in the program in front of the packet path, which exists while there are sessions or services with\n" +
		"--select=n3; to be added to the costs of the packet in the packet path.\n\n")
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "path\tinstructions\tlook-ups\thelpers")
	for i, c := range gtp {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", gtpPaths()[i].name, c.total, c.lookups, c.helpers)
	}
	err = errors.Join(err, t.Flush())
	return b.String(), err
}

// fewest returns the cheapest of several runs of a path: the one with the fewest instructions. A
// run costs more if another connection occupies the home row of its own.
func (p *profiler) fewest(path path, number int) (fewest profiled, err error) {
	if path.under.includes(extended) && !p.extended { // the other paths run without services of other protocols
		if err := p.extend(); err != nil {
			return fewest, err
		}
	}
	for try := range 8 {
		run, err := p.run(path.in(1), 33_000+16*number+2*try)
		if err != nil {
			return fewest, err
		}
		if try == 0 || run.total < fewest.total {
			fewest = run
		}
	}
	return fewest, nil
}
