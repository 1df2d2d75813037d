package differential

import (
	"fmt"
	"strings"
)

// setting is a kernel setting that makes conntrack comparable.
type setting struct{ name, value, why string }

func settings() []setting {
	return []setting{
		{
			"net/netfilter/nf_conntrack_tcp_loose", "0",
			"a connection begins with a SYN. By default conntrack takes any segment for the middle of one, and sends it to an endpoint that has never heard of it",
		},
		{
			"net/netfilter/nf_conntrack_tcp_be_liberal", "1",
			"sequence numbers outside the window do not make a segment invalid: the receiver judges them, as with ours",
		},
		{
			"net/netfilter/nf_conntrack_tcp_ignore_invalid_rst", "1",
			"the same for a RST below the window: it is passed on, and changes nothing",
		},
		{
			"net/netfilter/nf_conntrack_checksum", "0",
			"a wrong checksum does not make a packet invalid: both translate it, and it must leave exactly as wrong as it came",
		},
	}
}

const documentHead = `# Compared with the kernel

` + "`test/differential`" + ` sends the same random packets through two load balancers, each in a network namespace of its own with
raw frames on both sides: the kernel's (nftables ` + "`dnat`, `snat` and `masquerade`" + `, nf_conntrack, forwarding) and ours. After each packet it
compares what has left, and where: all bytes, MAC addresses, TTL, options and checksums included.

- Services: TCP and UDP over IPv4 and IPv6 in modes default, fullnat (` + "`snat` to the VIP) and onearm (`masquerade`" + `), two endpoints
  in turn, two VIPs that share an endpoint.
- Packets: connections that open, talk, close and open again with the same ports; retransmissions, segments out of order, with wrong numbers, with any flags;
  RST and FIN of either side; UDP both ways; ICMP errors of hosts and of routers on the way, in both directions, with quotes of any length; fragments; TTL at its end; ToS and ECN;
  IP options and extension headers; wrong checksums and lengths; packets of no connection, of no service, from impossible sources.
- Numbers that each makes up for itself are set aside: source ports in modes that choose one, the IP identification of the kernel's own ICMP errors, and of
  IPv6 datagrams that it puts together and cuts again. Fragments are compared once all have come.
- Time is not compared: the model test (` + "`test/model`" + `) has the timeouts.
- Neither side has hosts that would answer by themselves. Both machines have the VIPs on lo and forward what is not theirs, so that a packet that ours leaves to the kernel
  is compared too.

` + "`make test`" + ` runs the same few hundred sequences each time; ` + "`go test ./test/differential -seed 1000 -sequences 100000 -timeout 0`" + ` runs others. A sequence that fails is cut down to
the fewest packets and printed as a packet script, to be put into ` + "`test/packet/testdata`" + `.

This file is written from the tables of the test (` + "`make update`" + `).

## Settings of conntrack

`

// markdown is docs/differential.md.
func markdown() string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, s := range settings() {
		fmt.Fprintf(&b, "- `%s=%s`: %s.\n", strings.ReplaceAll(strings.TrimPrefix(s.name, "net/netfilter/"), "/", "."), s.value, s.why)
	}
	b.WriteString("\n## Intended differences\n\nAnything else that differs fails the test, and so does a row that no longer occurs.\n")
	for _, d := range differences() {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\nWhy: %s\n", d.name, d.what, d.why)
	}
	return b.String()
}
