package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"loxilb/internal/lb"
)

// readHAProxy reads the parts in mode tcp of a haproxy.cfg. Servers see the address of HAProxy, so
// services have the mode onearm.
func readHAProxy(c *collector, text string) {
	r := &haproxyReader{collector: c, backends: map[string]*haproxySection{}, defaults: haproxySection{pool: weighted()}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			r.line(number, words)
		}
	}
	for _, s := range r.sections {
		r.services(s)
	}
}

// haproxySection is a frontend, a backend, a listen section, or the defaults of the following
// sections.
type haproxySection struct {
	kind, name string
	line       int
	mode       string
	binds      []haproxyBind
	backend    string
	pool       lb.Service    // algorithm, endpoints, probe, timeout
	tunnel     time.Duration // replaces the timeouts of client and server; 0: it does not
	check      bool          // a server is checked
	server     []string      // default-server
}

// weighted returns a pool without a balance keyword, whose servers have weights.
func weighted() lb.Service { return lb.Service{Algorithm: lb.Priority} }

type haproxyBind struct {
	line int
	at   string
}

type haproxyReader struct {
	*collector
	sections []*haproxySection
	backends map[string]*haproxySection
	defaults haproxySection
	now      *haproxySection
}

// silent are keywords that do not affect the choice of servers.
var silent = []string{
	"log", "log-format", "log-tag", "description", "retries", "fullconn", "id", "stats", "monitor-uri", "unique-id-format", "backlog", "http-reuse", "errorfile",
}

func (r *haproxyReader) line(number int, words []string) {
	switch words[0] {
	case "global", "peers", "resolvers", "userlist", "mailers", "program", "ring", "cache":
		r.now = nil
		return
	case "defaults":
		r.defaults = haproxySection{kind: words[0], line: number, pool: weighted()}
		r.now = &r.defaults
		return
	case "frontend", "backend", "listen":
		s := r.defaults
		s.kind, s.line = words[0], number
		if len(words) > 1 {
			s.name = words[1]
		}
		s.server = slices.Clone(s.server)
		r.now = &s
		r.sections = append(r.sections, &s)
		if s.kind == "backend" {
			r.backends[s.name] = &s
		}
		return
	}
	if r.now == nil || slices.Contains(silent, words[0]) {
		return
	}
	r.keyword(number, r.now, words)
}

func (r *haproxyReader) keyword(number int, s *haproxySection, words []string) {
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	switch words[0] {
	case "mode":
		s.mode = argument
	case "bind":
		for _, w := range words[min(2, len(words)):] {
			if w == "ssl" || w == "accept-proxy" {
				r.addNote(number, "bind %s is skipped: it has %s, but loxilb forwards connections unchanged", argument, w)
				return
			}
		}
		for at := range strings.SplitSeq(argument, ",") {
			s.binds = append(s.binds, haproxyBind{number, at})
		}
	case "default_backend":
		s.backend = argument
	case "balance":
		r.balance(number, s, argument)
	case "server":
		r.server(number, s, words)
	case "default-server":
		s.server = append(s.server, words[1:]...)
	case "timeout":
		r.timeout(number, s, words)
	case "option":
		r.option(number, s, words[1:])
	case "source":
		r.addNote(number, "source is ignored: set source addresses with --snat")
	default:
		r.addNote(number, "%s is ignored: not supported by loxilb", strings.Join(words[:min(2, len(words))], " "))
	}
}

func (r *haproxyReader) balance(number int, s *haproxySection, name string) {
	switch name {
	case "roundrobin", "static-rr":
		s.pool.Algorithm = lb.Priority
	case "leastconn":
		s.pool.Algorithm = lb.LeastConnections
	case "random":
		s.pool.Algorithm = lb.Random
	case "source":
		s.pool.Algorithm = lb.Persist
	default:
		r.addNote(number, "balance %s: not supported by loxilb, weighted round robin is used", name)
		s.pool.Algorithm = lb.Priority
	}
}

func (r *haproxyReader) timeout(number int, s *haproxySection, words []string) {
	if len(words) < 3 || !slices.Contains([]string{"client", "server", "tunnel"}, words[1]) {
		return // of the proxy's own connections
	}
	d, err := haproxyTime(words[2])
	if err != nil {
		r.addNote(number, "timeout %q is not a duration", words[2])
		return
	}
	d = min(max(d.Round(time.Second), time.Second), 24*time.Hour)
	if words[1] == "tunnel" {
		s.tunnel = d
	} else if s.pool.IdleTimeout == 0 || d < s.pool.IdleTimeout {
		s.pool.IdleTimeout = d
	}
}

// haproxyTime parses a number of milliseconds, or a number with a unit.
func haproxyTime(text string) (time.Duration, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Millisecond, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func (r *haproxyReader) option(number int, s *haproxySection, words []string) {
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "tcplog", "httplog", "dontlognull", "dontlog-normal", "log-health-checks", "logasap", "tcpka", "clitcpka", "srvtcpka", "redispatch",
		"splice-auto", "splice-request", "splice-response", "tcp-smart-accept", "tcp-smart-connect", "allbackups", "nolinger":
	case "tcp-check":
		s.pool.Probe.Type = lb.ProbeTCP
	case "httpchk":
		s.pool.Probe.Type, s.pool.Probe.Request = lb.ProbeHTTP, "/"
		s.pool.Probe.Statuses = []lb.StatusRange{{First: 200, Last: 399}}
		if len(words) > 2 {
			s.pool.Probe.Request = words[2]
		} else if len(words) == 2 {
			s.pool.Probe.Request = words[1]
		}
		if len(words) > 2 && words[1] != "GET" {
			r.addNote(number, "option httpchk uses %s, but loxilb probes with GET", words[1])
		}
	default:
		r.addNote(number, "option %s is ignored: not supported by loxilb", words[0])
	}
}

func (r *haproxyReader) server(number int, s *haproxySection, words []string) {
	if len(words) < 3 {
		r.addNote(number, "a server needs a name and an address")
		return
	}
	e := lb.Endpoint{Weight: 1}
	var err error
	host, port := words[2], ""
	if i := strings.LastIndexByte(words[2], ':'); i >= 0 {
		host, port = words[2][:i], words[2][i+1:]
	}
	if e.Addr, err = address(host); err == nil && port != "" {
		e.Port, err = portOf(port, "tcp")
	}
	if err != nil {
		r.addNote(number, "server %s is skipped: %v", words[1], err)
		return
	}
	if e.Backup, err = r.serverWords(number, s, &e, append(slices.Clone(s.server), words[3:]...)); err != nil {
		r.addNote(number, "server %s is skipped: %v", words[1], err)
		return
	}
	s.pool.Endpoints = append(s.pool.Endpoints, e)
}

// serverWords parses the words after a server's address.
func (r *haproxyReader) serverWords(number int, s *haproxySection, e *lb.Endpoint, words []string) (backup uint8, err error) {
	next := func(i *int) string {
		if *i++; *i < len(words) {
			return words[*i]
		}
		return ""
	}
	p := &s.pool.Probe
	for i := 0; i < len(words); i++ {
		switch word := words[i]; word {
		case "check":
			s.check = true
		case "no-check", "on-marked-down", "on-marked-up", "resolvers", "cookie", "id", "observe", "error-limit", "init-addr":
			if word != "no-check" {
				next(&i)
			}
			if word == "cookie" {
				r.addNote(number, "cookie is ignored: loxilb does not inspect connections")
			}
		case "ssl", "send-proxy", "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn":
			return backup, fmt.Errorf("it needs %s, but loxilb forwards connections unchanged", word)
		case "backup":
			backup = 1
		case "disabled":
			e.Weight = 0
		case "weight":
			if e.Weight, err = weight(next(&i)); err != nil {
				return backup, err
			}
		case "inter", "fastinter", "downinter":
			if d, err := haproxyTime(next(&i)); err == nil && word == "inter" {
				p.Interval = max(d, 100*time.Millisecond)
			}
		case "rise":
			p.Rise, _ = strconv.Atoi(next(&i)) // an invalid number becomes the default, as haproxy -c refuses it
		case "fall":
			p.Fall, _ = strconv.Atoi(next(&i))
		case "port":
			if p.Port, err = portOf(next(&i), "tcp"); err != nil {
				return backup, err
			}
		case "maxconn", "minconn", "maxqueue", "slowstart":
			value := next(&i)
			if d, err := haproxyTime(value); word == "slowstart" && err == nil {
				s.pool.SlowStart = min(d.Round(time.Second), time.Hour)
				continue
			}
			r.addNote(number, "%s is ignored: loxilb limits connections per service and client, not per server", word)
		default:
			r.addNote(number, "%s of a server is ignored: not supported by loxilb", word)
		}
	}
	return backup, nil
}

// services adds a service for each address that a frontend or a listen section binds.
func (r *haproxyReader) services(s *haproxySection) {
	if s.kind == "backend" {
		return
	}
	pool := s
	if s.backend != "" {
		if pool = r.backends[s.backend]; pool == nil {
			r.addNote(s.line, "%s %s has no backend %s", s.kind, s.name, s.backend)
			return
		}
	}
	if s.mode == "http" || pool.mode == "http" {
		r.addNote(s.line, "%s %s is skipped: loxilb supports mode tcp, not http", s.kind, s.name)
		return
	}
	for _, b := range s.binds {
		one := pool.pool
		one.Endpoints = slices.Clone(one.Endpoints)
		one.Name, one.Mode, one.Protocol, one.Monitor = s.name, lb.ModeOneArm, lb.TCP, pool.check
		if t := s.pool.IdleTimeout; t != 0 && (one.IdleTimeout == 0 || t < one.IdleTimeout) {
			one.IdleTimeout = t
		}
		if pool.tunnel != 0 {
			one.IdleTimeout = pool.tunnel
		}
		if !pool.check {
			one.Probe = lb.Probe{}
		}
		if !r.bind(&b, &one) {
			continue
		}
		for i := range one.Endpoints {
			if e := &one.Endpoints[i]; e.Port == 0 { // the port that the client connected to
				e.Port, e.PortMax = one.Port, one.PortMax
			}
		}
		r.add(b.line, one)
	}
}

func (r *haproxyReader) bind(b *haproxyBind, s *lb.Service) bool {
	at := strings.TrimPrefix(strings.TrimPrefix(b.at, "ipv4@"), "ipv6@")
	i := strings.LastIndexByte(at, ':')
	if i < 0 || strings.HasPrefix(at, "/") || strings.Contains(at, "@") {
		r.addNote(b.line, "bind %s is skipped: it is not ADDRESS:PORT", b.at)
		return false
	}
	host, ports := at[:i], at[i+1:]
	var err error
	switch {
	case host == "" || host == "*":
		s.VIP, s.Mode = netip.IPv4Unspecified(), lb.ModeHostOneArm
	default:
		if s.VIP, err = address(host); err == nil && s.VIP.IsUnspecified() {
			s.Mode = lb.ModeHostOneArm
		}
	}
	first, last, isRange := strings.Cut(ports, "-")
	if err == nil {
		s.Port, err = portOf(first, "tcp")
	}
	if err == nil && isRange {
		s.PortMax, err = portOf(last, "tcp")
	}
	if err != nil {
		r.addNote(b.line, "bind %s is skipped: %v", b.at, err)
		return false
	}
	return true
}
