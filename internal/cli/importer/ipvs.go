package importer

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// readIPVS reads the output of `ipvsadm -S -n`: a line for each service and each server.
func readIPVS(c *collector, text string) {
	r := &ipvsReader{collector: c, services: map[string]*found{}, skipped: map[string]bool{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		r.line(number, words)
	}
}

type ipvsReader struct {
	*collector
	services map[string]*found // by flag and address, such as "-t 10.0.0.1:80"
	skipped  map[string]bool   // firewall marks with a note
}

// ipvsLong maps ipvsadm's long options to the short ones.
var ipvsLong = map[string]string{
	"--add-service": "-A", "--add-server": "-a", "--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f", "--scheduler": "-s",
	"--persistent": "-p", "--netmask": "-M", "--real-server": "-r", "--gatewaying": "-g", "--ipip": "-i", "--masquerading": "-m", "--weight": "-w",
	"--u-threshold": "-x", "--l-threshold": "-y", "--ops": "-o", "--sched-flags": "-b", "--ipv6": "-6",
}

// options parses the options of a line. The value of a flag without an argument is "".
func (r *ipvsReader) options(number int, words []string) map[string]string {
	opts := map[string]string{}
	for i := 0; i < len(words); i++ {
		name, value, given := strings.Cut(words[i], "=")
		if short, ok := ipvsLong[name]; ok {
			name = short
		}
		switch name {
		case "-A", "-a", "-g", "-i", "-m", "-o", "-6", "--tun-nocsum", "--tun-csum", "--tun-remcsum":
		case "-t", "-u", "-f", "-s", "-p", "-M", "-r", "-w", "-x", "-y", "-b", "--pe", "--sctp-service", "--tun-type", "--tun-port":
			if !given && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				i++
				value = words[i]
			}
		default:
			r.addNote(number, "unknown option %s is ignored", words[i])
			continue
		}
		opts[name] = value
	}
	return opts
}

func (r *ipvsReader) line(number int, words []string) {
	opts := r.options(number, words)
	key, name, ok := r.key(number, opts)
	if !ok {
		return
	}
	if _, service := opts["-A"]; service {
		r.service(number, key, name, opts)
		return
	}
	if _, server := opts["-a"]; !server {
		r.addNote(number, "this is neither -A nor -a: only output of ipvsadm -S is supported")
		return
	}
	f := r.services[name]
	if f == nil {
		r.addNote(number, "the service %s of this server is not defined before it", name)
		return
	}
	r.server(number, f, opts)
}

// key returns the key of a line's service, and the service as written in the line.
func (r *ipvsReader) key(number int, opts map[string]string) (key lb.Key, name string, ok bool) {
	if mark, fw := opts["-f"]; fw {
		if !r.skipped[mark] {
			r.addNote(number, "a service of the firewall mark %s has no address: create one for each VIP, with --mark", mark)
			r.skipped[mark] = true
		} else {
			r.addNote(number, "this belongs to firewall mark %s, which is skipped", mark)
		}
		return key, "", false
	}
	for flag, protocol := range map[string]lb.Protocol{"-t": lb.TCP, "-u": lb.UDP, "--sctp-service": lb.SCTP} {
		if at, there := opts[flag]; there {
			var err error
			key.Protocol = protocol
			if key.VIP, key.Port, err = hostPort(at, protocol.String()); err != nil {
				r.addNote(number, "%v; ipvsadm -S -n prints numbers", err)
				return key, "", false
			}
			return key, flag + " " + at, true
		}
	}
	r.addNote(number, "no service given (-t, -u, -f or --sctp-service)")
	return key, "", false
}

func (r *ipvsReader) service(number int, key lb.Key, name string, opts map[string]string) {
	s := lb.Service{Key: key}
	if key.Port == 0 { // all ports of the address, with -p
		s.Port, s.PortMax = 1, 65535
	}
	var why string
	if s.Algorithm, why = scheduler(opts["-s"]); why != "" {
		r.addNote(number, "scheduler %s: %s", opts["-s"], why)
	}
	if timeout, persistent := opts["-p"]; persistent {
		seconds, err := strconv.Atoi(timeout)
		if err != nil || seconds < 1 || seconds > 86400 {
			seconds = min(max(seconds, 300), 86400)
			if timeout != "" { // otherwise ipvsadm's default, 300
				r.addNote(number, "persistence timeout %q is replaced by %d (allowed: 1 to 86400 seconds)", timeout, seconds)
			}
		}
		s.Algorithm, s.PersistTimeout = lb.Persist, time.Duration(seconds)*time.Second
		if s := opts["-s"]; s != "rr" && s != "wrr" {
			r.addNote(number, "a client's first server is chosen by weight, not by %s", opts["-s"])
		}
	}
	if mask := opts["-M"]; mask != "" {
		s.PersistPrefix = prefixOf(mask)
	}
	for _, flag := range []string{"-o", "-b", "--pe"} {
		if value, there := opts[flag]; there {
			r.addNote(number, "%s is ignored: not supported by loxilb", strings.TrimSpace(flag+" "+value))
		}
	}
	r.services[name] = r.add(number, s)
}

// prefixOf returns the prefix length that a netmask or a number stands for.
func prefixOf(mask string) uint8 {
	if a, err := netip.ParseAddr(mask); err == nil && a.Is4() {
		return uint8(bits.LeadingZeros32(^binary.BigEndian.Uint32(a.AsSlice())))
	}
	n, _ := strconv.ParseUint(mask, 10, 8) // ipvsadm prints only numbers
	return uint8(n)
}

// guePort is the only port of loxilb's GUE.
const (
	guePort = "6080"
	gueNote = "GUE uses port " + guePort + ", not %s: let the server listen on " + guePort
)

func (r *ipvsReader) server(number int, f *found, opts map[string]string) {
	e := lb.Endpoint{Weight: 1}
	var err error
	if e.Addr, e.Port, err = hostPort(opts["-r"], f.Protocol.String()); err != nil {
		r.addNote(number, "%v", err)
		return
	}
	if w, given := opts["-w"]; given {
		if e.Weight, err = weight(w); err != nil {
			r.addNote(number, "%v", err)
			return
		}
	}
	mode, tunnel := lb.ModeDSR, lb.TunnelNone
	if _, masq := opts["-m"]; masq {
		mode = lb.ModeDefault
	} else if _, tun := opts["-i"]; tun {
		switch tunnel = lb.TunnelIPIP; opts["--tun-type"] {
		case "", "ipip":
		case "gue":
			tunnel = lb.TunnelGUE
			if p := opts["--tun-port"]; p != guePort {
				r.addNote(number, gueNote, p)
			}
		default:
			r.addNote(number, "a server behind a tunnel of type %s is skipped: loxilb supports ipip and gue", opts["--tun-type"])
			return
		}
	}
	if len(f.Endpoints) > 0 && (f.Mode != mode || f.Tunnel != tunnel) {
		r.addNote(number, "server %s is skipped: its forwarding method differs from earlier servers, and a service has one mode", opts["-r"])
		return
	}
	f.Mode, f.Tunnel = mode, tunnel
	for _, flag := range []string{"-x", "-y"} {
		if n := opts[flag]; n != "" && n != "0" {
			r.addNote(number, "%s %s is ignored: loxilb limits connections per service and client, not per server", flag, n)
		}
	}
	if f.PortMax != 0 && e.Port == 0 { // the client's own port
		e.Port, e.PortMax = f.Port, f.PortMax
	}
	f.Endpoints = append(f.Endpoints, e)
}
