package packet

import (
	"fmt"
	"strings"
)

// script is one file of testdata: lines that are run from top to bottom.
//
//	service KEY FIELDS     make the service, or update it (lb.ParseService)
//	delete KEY             delete it
//	down ADDR:PORT         an endpoint is down in all services; up ADDR:PORT: it is up again
//	rule KEY ACTION        make the firewall rule, or change what it does (lb.ParseRule)
//	unrule KEY             delete it
//	in LINK PACKET         a packet arrives ...
//	in LINK PACKET reason=NAME
//	                       ... is dropped for that reason, and what leaves is the answer to it
//	out LINK PACKET        ... and leaves: what is not stated is as it came in, TTL one less, MAC addresses of the hop
//	                       (challenged, challenge-answered: a SYN went back as a question, and the client replied to that)
//	pass LINK PACKET       a packet arrives and the kernel gets it, not a byte changed
//	drop LINK PACKET reason=NAME
//	                       a packet arrives and is dropped, and the counter of that reason alone goes up by one
//	xdp forwards|passes|challenges|drops
//	                       that is what the XDP program, where it runs too, does with the packet above
//	advance 61s            all connections have been silent for that much longer
//	policer NAME BURST to KIND TARGET [in|out|both]
//	                       make a policer of a byte a second, whose bursts are so many bytes each; without BURST and the rest: take it away
//	mirror NAME LINK[:VLAN] to KIND TARGET [in|out|both]
//	                       have packets copied to a link, with a VLAN's tag; without LINK and the rest: no more
//	mark N                 from here on, packets carry that mark
//	away                   the daemon is gone for a while: nobody sweeps
//	ports N                the machine's addresses have so many source ports each towards an endpoint
//	                       (only where half-open is given, too)
//	sweep                  connections that are over are removed
//	next-hops              what the connections know of routes and neighbours is out of date
//	next-hops each         no connection uses what another found of the way to an address; "shared" is how scripts begin
//	next-hops stay         what follows is on one CPU, and at the beginning of an epoch of next hops
//	neighbours             what the connections know of neighbours alone is out of date
//	ip ARGUMENTS           the ip command in the load balancer's namespace
//	sysctl NAME VALUE      a kernel setting there
//	size N                 connections that the table holds (first line only)
//	half-open N            percent of the table that half-open connections may have (first line, or after size)
//	live                   from here on, packets go through the attached program and the kernel (lab.SendLive)
//	conntrack | stats | handshakes | lifetimes | pressure | policers | mirrors | rules
//	                       the table, the counters of all services, those of handshakes with endpoints, how long connections lived that are over and
//	                       what they carried, how full the table is, what policers have said, mirrors have copied, or firewall rules have decided about; what is expected follows a line of dashes
//	                       and ends with an empty line
//
// A comment starts with #; `# V43` says that the step below is that vector of the checklist.
type script struct {
	name  string
	lines []string
}

const dashes = "----"

// rewriter runs a script and writes it anew with what really happened.
type rewriter struct {
	out      []string
	failures []string
}

func (r *rewriter) keep(lines ...string) { r.out = append(r.out, lines...) }

func (r *rewriter) fail(line int, format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf("line %d: ", line+1)+fmt.Sprintf(format, args...))
}

// block compares the lines that follow a conntrack or stats line, from line i on, with what the
// data path says, and returns where the script goes on.
func (r *rewriter) block(s script, i int, got []string) (next int) {
	r.keep(s.lines[i], dashes)
	r.keep(got...)
	next = i + 1
	if next >= len(s.lines) || s.lines[next] != dashes {
		r.fail(i, "%s: a line of dashes is missing", s.lines[i])
		return next
	}
	next++
	var want []string
	for next < len(s.lines) && strings.TrimSpace(s.lines[next]) != "" {
		want = append(want, s.lines[next])
		next++
	}
	if strings.Join(want, "\n") != strings.Join(got, "\n") {
		r.fail(i, "%s is\n\t%s\nwant\n\t%s", s.lines[i], strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return next
}

// cutVerb splits a line after its first word.
func cutVerb(line string) (verb, rest string) {
	verb, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	return verb, strings.TrimSpace(rest)
}

// expectation is what a script says about a packet.
type expectation struct {
	verb   string // out, pass or drop; "" when it does not say
	link   string // out: through which
	packet string // out: as what
	reason string // drop: why
}

// step is a packet and what is expected of it: lines first to next-1 of the script.
type step struct {
	link, packet string
	first, next  int
	want         expectation
}

// cutStep reads the step that starts at line i.
func cutStep(s script, i int) step {
	verb, rest := cutVerb(s.lines[i])
	link, packet := cutVerb(rest)
	st := step{link: link, packet: packet, first: i, next: i + 1}
	switch verb {
	case "pass", "drop":
		st.want.verb = verb
	case "in":
		if st.next < len(s.lines) {
			if verb, rest := cutVerb(s.lines[st.next]); verb == "out" {
				st.want.verb = verb
				st.want.link, st.want.packet = cutVerb(rest)
				st.next++
			}
		}
	}
	if at := strings.LastIndex(st.packet, "reason="); at > 0 {
		st.want.reason = st.packet[at+len("reason="):]
		st.packet = strings.TrimSpace(st.packet[:at])
	}
	return st
}

// format writes the step with what happened in place of what was expected.
func (st step) format(got expectation) []string {
	switch got.verb {
	case "out":
		in := "in " + st.link + " " + st.packet
		if got.reason != "" {
			in += " reason=" + got.reason
		}
		return []string{in, "out " + got.link + " " + got.packet}
	case "drop":
		return []string{"drop " + st.link + " " + st.packet + " reason=" + got.reason}
	}
	line := got.verb + " " + st.link + " " + st.packet
	if got.reason != "" {
		line += " reason=" + got.reason
	}
	return []string{line}
}
