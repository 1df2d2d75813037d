package differential

import (
	"fmt"
	"strings"

	"loxilb/tools/markdown"
)

// setting is a kernel setting that makes conntrack comparable.
type setting struct{ name, value, why string }

func settings() []setting {
	return []setting{
		{
			"net/netfilter/nf_conntrack_tcp_loose", "0",
			"connections begin with a SYN. By default conntrack accepts any segment and sends it to an endpoint without that connection",
		},
		{
			"net/netfilter/nf_conntrack_tcp_be_liberal", "1",
			"segments outside the window are valid; the receiver judges them, as with ours",
		},
		{
			"net/netfilter/nf_conntrack_tcp_ignore_invalid_rst", "1",
			"a RST below the window is forwarded and changes nothing",
		},
		{
			"net/netfilter/nf_conntrack_checksum", "0",
			"packets with a wrong checksum are valid, and must leave equally wrong",
		},
	}
}

const documentHead = `# Compared with the kernel

` + "`test/differential`" + ` sends the same random packets through two load balancers in network namespaces:
the kernel's (nftables, nf_conntrack, forwarding) and ours, in modes default, fullnat and onearm.
After each packet it compares what leaves, byte by byte. Ignored are chosen source ports, IP
identifications of the kernel's own packets, and time (` + "`test/model`" + ` tests timeouts). A failing
sequence is reduced and printed as a packet script. ` + "`make test`" + ` runs a few hundred sequences;
` + "`go test ./test/differential -seed 1000 -sequences 100000 -timeout 0`" + ` runs others.

## Settings of conntrack

`

// document is docs/differential.md.
func document() string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, s := range settings() {
		text := fmt.Sprintf("`%s=%s`: %s.", strings.ReplaceAll(strings.TrimPrefix(s.name, "net/netfilter/"), "/", "."), s.value, s.why)
		b.WriteString(markdown.Item(text))
	}
	b.WriteString("\n## Intended differences\n\nOther differences fail the test, and so do listed ones that no longer occur.\n" +
		"[differences.go](../test/differential/differences.go) has what each is, and its reason:\n\n")
	var names []string
	for _, d := range differences() {
		names = append(names, d.name)
	}
	b.WriteString(markdown.Wrap(strings.Join(names, ", "), ""))
	return b.String()
}
