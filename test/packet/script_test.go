package packet

import (
	"fmt"
	"strings"
)

// script is a file in testdata. Its lines run from top to bottom:
//
//	service KEY FIELDS     create or update a service (lb.ParseService)
//	delete KEY             delete the service
//	down ADDR:PORT         set an endpoint down in all services; up ADDR:PORT sets it up again
//	rule KEY ACTION        create a firewall rule, or change its action (policy.ParseRule)
//	unrule KEY             delete the rule
//	in LINK PACKET         a packet arrives ...
//	in LINK PACKET reason=NAME
//	                       ... is dropped for this reason, and the packet that leaves is the reply to it
//	out LINK PACKET        ... and leaves: fields that are not stated are as they arrived, the TTL is one less,
//	                       and the MAC addresses are those of the hop (reasons challenged and
//	                       challenge-answered: the reply to a SYN, and to the client's answer)
//	pass LINK PACKET       a packet arrives, and passes to the kernel unchanged
//	drop LINK PACKET reason=NAME
//	                       a packet arrives and is dropped, and only the counter of this reason grows, by one
//	xdp forwards|passes|challenges|drops
//	                       the XDP program, if the test runs it, does this with the packet above
//	advance 61s            age all connections by this idle time
//	policer NAME BURST to KIND TARGET [in|out|both]
//	                       create a policer of one byte a second with this burst; without arguments: delete it
//	mirror NAME LINK[:VLAN] to KIND TARGET [in|out|both]
//	                       copy packets to a link, with a VLAN's tag; without arguments: stop copying
//	mark N                 set this mark on all following packets
//	away                   simulate that the daemon is down: nothing sweeps
//	ports N                set the number of source ports of each address of the machine towards an endpoint
//	                       (only together with half-open)
//	sweep                  remove ended connections
//	next-hops              expire the cached routes and neighbours of connections
//	next-hops each         connections do not share cached next hops; "shared" is the default
//	next-hops stay         run the following lines on one CPU, at the beginning of an epoch of next hops
//	neighbours             expire only the cached neighbours of connections
//	ip ARGUMENTS           run the ip command in the load balancer's namespace
//	sysctl NAME VALUE      set a kernel parameter there
//	size N                 size of the connection table (first line only)
//	half-open N            limit half-open connections to this percentage of the table (first line, or after size)
//	live                   send all following packets through the attached program and the kernel (lab.SendLive)
//	conntrack | stats | handshakes | lifetimes | pressure | policers | mirrors | rules
//	                       print the connection table, the counters of services, those of handshakes with
//	                       endpoints, the durations and sizes of ended connections, the use of the table, or
//	                       the counters of policers, mirrors or firewall rules; the expected output follows
//	                       a line of dashes and ends with an empty line
//
// In SCTP packets, `data proof` is the balancer's HEARTBEAT to another address of a client, and the
// HEARTBEAT ACK that answers the last HEARTBEAT.
//
// A comment starts with #; `# V43` means that the step below is this vector of the checklist.
type script struct {
	name  string
	lines []string
}

const dashes = "----"

// rewriter runs a script and rewrites it with the actual results.
type rewriter struct {
	out      []string
	failures []string
}

func (r *rewriter) write(lines ...string) { r.out = append(r.out, lines...) }

func (r *rewriter) fail(line int, format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf("line %d: ", line+1)+fmt.Sprintf(format, args...))
}

// compareState compares the expected lines from index i on, after a line such as conntrack or
// stats, with the data path's state. It returns the index after the expected lines.
func (r *rewriter) compareState(s script, i int, got []string) (next int) {
	r.write(s.lines[i], dashes)
	r.write(got...)
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

// splitVerb splits a line after its first word.
func splitVerb(line string) (verb, rest string) {
	verb, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	return verb, strings.TrimSpace(rest)
}

// expectation is the result that a script expects for a packet.
type expectation struct {
	verb   string // out, pass or drop; "": any
	link   string // out: the interface
	packet string // out: the packet that leaves
	reason string // drop: the reason
}

// step is a packet and its expected result: lines first to next-1 of the script.
type step struct {
	link, packet string
	first, next  int
	want         expectation
}

// parseStep reads the step that starts at line i.
func parseStep(s script, i int) step {
	verb, rest := splitVerb(s.lines[i])
	link, packet := splitVerb(rest)
	st := step{link: link, packet: packet, first: i, next: i + 1}
	switch verb {
	case "pass", "drop":
		st.want.verb = verb
	case "in":
		if st.next < len(s.lines) {
			if verb, rest := splitVerb(s.lines[st.next]); verb == "out" {
				st.want.verb = verb
				st.want.link, st.want.packet = splitVerb(rest)
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

// format returns the step with the actual result in place of the expected one.
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
