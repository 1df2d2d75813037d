package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/pkt"
)

// errEnough ends a stream after the requested packets or updates.
var errEnough = errors.New("enough")

// grace is how much longer than requested the server traces: loxicmd ends the trace.
const grace = 5 * time.Second

type tracer struct {
	*session.Options
	count   int
	lasts   time.Duration
	sample  string
	payload bool
	file    string
}

func traceCommand(o *session.Options) *cobra.Command {
	t := &tracer{Options: o}
	cmd := &cobra.Command{
		Use:   "trace [FILTER]",
		Short: "Show live packets before and after translation, with their verdicts",
		Long: "Shows live packets as they enter and leave loxilb's programs: two lines per packet, in the\n" +
			"syntax of the packet scripts. Tracing costs nothing while it is off. Packets that arrive faster\n" +
			"than they can be shown are counted and reported. Only headers are captured, unless --payload is\n" +
			"given. Requires the role admin.\n\n" +
			"FILTER is a list of conditions; a packet must match all of them:\n" +
			"  host IP[/LENGTH]      an address of the packet, before or after translation\n" +
			"  port N                a port of the packet, before or after translation\n" +
			"  proto NAME|N          tcp, udp, sctp, icmp or a number; the bare name works too\n" +
			"  vip IP[:PORT]         sent to this VIP, or answered from it\n" +
			"  service NAME|KEY      sent to this service, or answered from it\n" +
			"  interface NAME        received or sent on this interface\n" +
			"  verdict WORD          pass, forward, drop, answer (dropped, and the sender notified), challenge\n" +
			"  reason WORD           dropped for this reason",
		Example: "  loxicmd trace\n" +
			"  loxicmd trace service web host 100.100.100.7 --count=20\n" +
			"  loxicmd trace verdict drop --for=30s\n" +
			"  loxicmd trace vip 20.20.20.1:2020 --sample=1%\n" +
			"  loxicmd trace -w - | wireshark -k -i -",
		RunE: func(cmd *cobra.Command, words []string) error { return t.run(cmd.Context(), words) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVarP(&t.count, "count", "c", 10_000, "stop after N packets")
	session.DurationVar(fs, &t.lasts, "for", "", 10*time.Minute, "stop after this time")
	fs.StringVar(&t.sample, "sample", "100%", "trace only this share of the packets")
	fs.BoolVar(&t.payload, "payload", false, "show the payload too, up to byte 192 of the packet")
	fs.StringVarP(&t.file, "write", "w", "", "write pcapng for Wireshark to this file; - is standard output")
	return cmd
}

func (t *tracer) run(ctx context.Context, words []string) error {
	params, err := filter(words)
	if err != nil {
		return err
	}
	if params.Sample, err = percent(t.sample); err != nil {
		return err
	}
	if err := session.AtLeast(1, "count", t.count); err != nil {
		return err
	}
	if t.lasts < time.Second || t.lasts > 24*time.Hour-grace {
		return fmt.Errorf("--for %s is out of range (allowed: 1s to 23h59m)", t.lasts)
	}
	params.Count, params.Seconds, params.Payload = t.count, int((t.lasts + grace + time.Second - 1).Seconds()), t.payload
	show, closeAll, err := t.printer()
	if err != nil {
		return err
	}
	// The time begins with the stream: exchanging the programs takes a while.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := t.count
	err = t.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
		resp, err := client.TracePackets(ctx, params, asStream)
		if err == nil && resp.StatusCode == http.StatusOK {
			time.AfterFunc(t.lasts, cancel)
			fmt.Fprintln(t.Env.Stderr, "tracing; press Ctrl-C to stop")
		}
		return resp, err
	}, func(item json.RawMessage) error {
		if err := show(item); err != nil {
			return err
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, closeAll())
}

// printer returns functions that print packets and finish the output.
func (t *tracer) printer() (show func(json.RawMessage) error, end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case t.file == "-":
		return decoded(newCapture(t.Env.Stdout).write), nothing, nil
	case t.file != "":
		// packets are confidential
		f, err := os.OpenFile(t.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return nil, nil, session.Refused("--write: %w", err)
		}
		return decoded(newCapture(f).write), f.Close, nil
	case t.Output == "json":
		return func(item json.RawMessage) error { return t.Print(string(item) + "\n") }, nothing, nil
	case t.Output == "yaml":
		return nil, nil, errors.New("--output \"yaml\" is not supported for packets (allowed: wide, json)")
	}
	return decoded(func(p *v1.PacketTrace) error { return t.Print(packetLines(p, t.Output == "wide")) }), nothing, nil
}

func decoded(show func(*v1.PacketTrace) error) func(json.RawMessage) error {
	return func(item json.RawMessage) error {
		var p v1.PacketTrace
		if err := session.Decode(item, &p); err != nil {
			return err
		}
		return show(&p)
	}
}

// percent parses a share, such as 1%.
func percent(text string) (float64, error) {
	number, is := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !is || !(n > 0 && n <= 100) { // NaN, too
		return 0, fmt.Errorf("--sample %q is not a share (allowed: above 0%% to 100%%, as in 1%%)", text)
	}
	return n, nil
}

// packetLines formats a packet in the language of packet scripts: `in`, then `out`, `pass` or
// `drop`; after # the time, interface and duration.
func packetLines(p *v1.PacketTrace, wide bool) string {
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

// describe returns a packet's line and, if its data is incomplete, the available part of the data,
// which is written after the #.
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
