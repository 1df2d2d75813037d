package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/sctptest"
)

// Ports of the servers. Services have the same ports, except for the PROXY protocol, SCTP and QUIC.
const (
	ftpPort   = 21
	tftpPort  = 69
	gtpPort   = 2152
	proxyPort = 5011 // expects a PROXY header; port 5012 expects none, for plain routing
	sctpPort  = 5013
	quicPort  = 5014
)

// protocolWorkloads returns workloads of protocols end to end: with real clients and servers, and
// with the kernel's SCTP if it has one (make bench-guest).
func protocolWorkloads(s setting) []workload {
	all := append(programWorkloads(s), kernelSCTPWorkloads(s)...)
	for i := range all {
		all[i].onRequest, all[i].defaults = true, []string{baseline, "loxilb-one"}
	}
	return all
}

func programWorkloads(s setting) []workload {
	proxy := service{
		name: "proxy", protocol: "tcp", port: 86, target: proxyPort,
		options: []string{"--ppv2en"}, serve: serveProxied,
	}
	ftp := service{
		name: "ftp", protocol: "tcp", port: ftpPort, target: ftpPort,
		options: []string{"--helper=ftp"}, helper: "ftp", serve: serveFTP,
	}
	tftp := service{
		name: "tftp", protocol: "udp", port: tftpPort, target: tftpPort,
		options: []string{"--helper=tftp"}, helper: "tftp", serve: serveTFTP,
	}
	sctp := service{name: "sctp", protocol: "sctp", port: 87, target: sctpPort, serve: serveSCTP}
	quic := service{
		name: "quic", protocol: "udp", port: 443, target: quicPort,
		options: []string{"--select=quic"}, serverIDs: true, serve: serveQUIC,
	}
	gtp := service{
		name: "gtp", protocol: "udp", port: gtpPort, target: gtpPort,
		options: []string{"--select=n3"}, serve: noServer,
	}
	return []workload{
		{
			name: "protocol-proxy-rps", title: "PROXY protocol: requests to nginx, kept connections (" + wrkName(s.Wrk) + ")",
			unit: "requests/s", service: proxy, run: wrkProxied(true),
		},
		{
			name: "protocol-proxy-cps", title: "PROXY protocol: requests to nginx, a new connection each",
			unit: "requests/s", service: proxy, run: wrkProxied(false),
		},
		{
			name: "protocol-ftp", title: "FTP: files of 1 KB by curl from vsftpd, one control connection",
			unit: "files/s", service: ftp, run: fetch("ftp", "small[1-100]", 100),
		},
		{
			name: "protocol-ftp-bulk", title: "FTP: a file of 256 MB",
			unit: "MB/s", service: ftp, run: fetch("ftp", "large", largeFile),
		},
		{
			name: "protocol-tftp", title: "TFTP: files of 1 KB by curl from tftpd",
			unit: "files/s", service: tftp, run: fetch("tftp", "small[1-100]", 100),
		},
		{
			name: "protocol-sctp", title: "SCTP: messages of 1,000 bytes and their echoes, libusrsctp",
			unit: "messages/s", service: sctp, run: sctpEchoes,
		},
		{
			name: "protocol-quic", title: "QUIC: requests in 16 streams of a connection, quic-go",
			unit: "requests/s", service: quic, run: quicRequests,
		},
		{
			name: "protocol-gtp", title: "GTP-U: smallest packets of 256 tunnels through one CPU",
			unit: "packets/s", packets: true, service: gtp, run: packetsGTP,
		},
	}
}

func kernelSCTPWorkloads(s setting) []workload {
	crr := service{
		name: "sctp-crr", protocol: "sctp", port: 88,
		target: 5007, serve: serves("sctp-crr", 5007),
	}
	rr := service{
		name: "sctp-rr", protocol: "sctp", port: 89,
		target: 5008, serve: serves("sctp-rr", 5008),
	}
	return []workload{
		{
			name: "sctp-crr-1", title: "SCTP of the kernel: associate, request, response, shutdown: 1 stream" + cpuNote(s),
			unit: "exchanges/s", single: true, service: crr, run: exchange(1, false),
		},
		{
			name: "sctp-rr-1", title: "SCTP of the kernel: request, response in a kept association: 1 stream" + cpuNote(s),
			unit: "exchanges/s", single: true, service: rr, run: exchange(1, true),
		},
	}
}

// throughput repeats a job for some seconds and returns its units per second. The first job is a
// warm-up and is not counted.
func throughput(seconds, units float64, job func() error) ([]sample, error) {
	if err := job(); err != nil {
		return nil, err
	}
	start, jobs := time.Now(), 0
	for time.Since(start) < duration(seconds) {
		if err := job(); err != nil {
			return nil, err
		}
		jobs++
	}
	return []sample{{Value: units * float64(jobs) / time.Since(start).Seconds()}}, nil
}

// isBalanced reports whether an address is the service's VIP, rather than an endpoint's.
func (r *rig) isBalanced(to netip.AddrPort) bool { return to.Addr() == r.service.vip() }

// proxiedNginx is a server that expects the PROXY protocol at a port, and plain HTTP at the next
// one.
const proxiedNginx = `user root;
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 9000;
events { worker_connections 4000; }
http {
	access_log off;
	keepalive_requests 100000000;
	server {
		listen %[2]d proxy_protocol backlog=4096;
		listen %[3]d backlog=4096;
		location / { return 200 ""; }
	}
}
`

func serveProxied(ctx context.Context, r *rig, h *netnstest.Host) error {
	path, err := r.file("nginx-"+h.Name+".conf", fmt.Sprintf(proxiedNginx, r.dir, proxyPort, proxyPort+1))
	if err != nil {
		return err
	}
	return r.serveListening(ctx, h, proxyPort, "nginx", "-e", "stderr", "-p", r.dir, "-c", path)
}

// wrkProxied measures requests. With plain routing, no balancer adds a header, so requests go
// to the port that expects none.
func wrkProxied(keep bool) run {
	return func(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		if !r.isBalanced(to) {
			to = netip.AddrPortFrom(to.Addr(), to.Port()+1)
		}
		if _, err := r.wrk(s.Wrk, keep, max(s.Warmup, 1), to); err != nil {
			return nil, err
		}
		text, err := r.wrk(s.Wrk, keep, s.Seconds, to)
		if err != nil {
			return nil, err
		}
		out, err := parseWrk(text)
		return []sample{out}, err
	}
}

// largeFile is the size of a file of a bulk transfer, in MB.
const largeFile = 256

// files makes the files that clients fetch, and returns their directory. Servers drop root
// privileges, so everybody may read the files.
func (r *rig) files() (dir string, err error) {
	dir = filepath.Join(r.dir, "files")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "empty"), 0o755), os.Chmod(r.dir, 0o755)); err != nil {
		return "", err
	}
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("small", i+1)), make([]byte, 1024), 0o644); err != nil {
			return "", err
		}
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o644); err != nil {
		return "", err
	}
	return dir, os.Truncate(large, largeFile*1_000_000)
}

// vsftpd lets anonymous clients read.
const vsftpd = `listen=YES
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=%[1]s
no_anon_password=YES
ftp_username=ftp
seccomp_sandbox=NO
secure_chroot_dir=%[1]s/empty
connect_from_port_20=NO
`

func serveFTP(ctx context.Context, r *rig, h *netnstest.Host) error {
	dir, err := r.files()
	if err != nil {
		return err
	}
	path, err := r.file("vsftpd-"+h.Name, fmt.Sprintf(vsftpd, dir))
	if err != nil {
		return err
	}
	return r.serveListening(ctx, h, ftpPort, "vsftpd", path)
}

func serveTFTP(ctx context.Context, r *rig, h *netnstest.Host) error {
	dir, err := r.files()
	if err != nil {
		return err
	}
	p, err := r.start(h, "in.tftpd", "--foreground", "--listen", "--secure", "--permissive", "--user", "root", dir)
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		bound := false
		err := h.Do(func() error {
			tables := readFile("/proc/thread-self/net/udp") + readFile("/proc/thread-self/net/udp6")
			bound = strings.Contains(tables, fmt.Sprintf(":%04X ", tftpPort))
			return nil
		})
		if err == nil && !bound {
			err = fmt.Errorf("in.tftpd does not listen: %s", p.Output())
		}
		return err
	})
}

// fetch measures downloads of files. units is the number of files or megabytes that each run of
// curl downloads.
func fetch(scheme, files string, units float64) run {
	return func(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		return throughput(s.Seconds, units, func() error {
			_, err := r.load("curl", "-sS", "--max-time", "60", "-o", "/dev/null", fmt.Sprintf("%s://%s/%s", scheme, to, files))
			return err
		})
	}
}

func serveSCTP(ctx context.Context, r *rig, h *netnstest.Host) error {
	peer, err := sctptest.Build()
	if err != nil {
		return err
	}
	p, err := r.start(h, peer, "serve", h.Name, strconv.Itoa(sctpPort))
	if err != nil {
		return err
	}
	return awaitLine(ctx, p, "0 listening")
}

// awaitLine waits until a program has printed a line.
func awaitLine(ctx context.Context, p *netnstest.Process, line string) error {
	return until(ctx, func() error {
		select {
		case <-p.Done():
			return fmt.Errorf("the program ended: %s", p.Output())
		default:
		}
		if strings.Contains("\n"+p.Output(), "\n"+line+"\n") {
			return nil
		}
		return fmt.Errorf("%q is missing: %.500s", line, p.Output())
	})
}

// sctpEchoes measures messages in one association.
func sctpEchoes(ctx context.Context, r *rig, s setting, to netip.AddrPort) (out []sample, err error) {
	const messages = 5000
	peer, err := sctptest.Build()
	if err != nil {
		return nil, err
	}
	in, commands, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, commands.Close()) }()
	p, err := r.source.Start(netnstest.Command{Args: []string{peer, "connect"}, Input: in})
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	command := func(line, answer string) error {
		if _, err := fmt.Fprintln(commands, line); err != nil {
			return err
		}
		return awaitLine(ctx, p, answer)
	}
	if err := command(fmt.Sprintf("open 0 %s %d", to.Addr(), to.Port()), "0 up"); err != nil {
		return nil, err
	}
	sent := 0
	return throughput(s.Seconds, messages, func() error {
		sent += messages
		return command(fmt.Sprintf("bulk 0 %d", messages), fmt.Sprintf("0 bulk %d", sent))
	})
}

// packetsGTP measures the smallest packets of tunnels, all from one port of a base station.
func packetsGTP(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	flows := make([]flow, ppsFlows)
	for i := range flows {
		flows[i] = flow{from: netip.AddrPortFrom(endpointAddr(r.source), gtpPort), to: to, tunnel: uint32(i + 1)}
	}
	return r.packets(s, flows)
}
