package diagnose

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/pkt"
)

// lines formats a packet in the language of packet scripts: `in`, then `out`, `pass` or `drop`;
// after # the time, interface and duration.
func lines(p *v1.PacketTrace, wide bool) string {
	var b strings.Builder
	verb := "in"
	switch p.Verdict {
	case "pass":
		verb = "pass"
	case "drop":
		verb = "drop"
	}
	line, data := describe(&p.Before, wide)
	fmt.Fprintf(&b, "%s %s %s", verb, p.In, line)
	if p.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", p.Reason)
	}
	fmt.Fprintf(&b, "  # %s", p.Time.Local().Format("15:04:05.000000"))
	if p.Point != "ingress" {
		fmt.Fprintf(&b, " %s", p.Point)
	}
	took := " " + time.Duration(p.Took).String()
	if !changed(p) {
		return b.String() + took + data + "\n"
	}
	line, after := describe(p.After, wide)
	if after == data {
		after = ""
	}
	fmt.Fprintf(&b, "%s\nout %s %s  # %s%s%s\n", data, outgoing(p), line, p.Verdict, took, after)
	return b.String()
}

// outgoing returns the outgoing interface.
func outgoing(p *v1.PacketTrace) string {
	if p.Out == "" {
		return "kernel"
	}
	return p.Out
}

// changed reports whether the leaving packet differs. Packets for the kernel are mostly unchanged.
func changed(p *v1.PacketTrace) bool {
	return p.After != nil && (p.Verdict != "pass" || !bytes.Equal(p.Before.Data, p.After.Data))
}

// describe returns a packet's line, and for after the # the available part of its data, if that is
// incomplete.
func describe(v *v1.PacketView, wide bool) (line, data string) {
	line, part := pkt.Describe(v.Data, v.Length, v.Layer3, wide)
	if v.Segment > 0 {
		line += fmt.Sprintf(" gso %d", v.Segment)
	}
	if len(part) > 0 {
		data = fmt.Sprintf(" data %x", part)
	}
	return line, data
}
