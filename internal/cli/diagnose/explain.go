package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func explainCommand(o *session.Options) *cobra.Command {
	params := &v1.ExplainParams{}
	cmd := &cobra.Command{
		Use:   "explain --from IP[:PORT] --to IP:PORT | --client IP --endpoint IP[:PORT]",
		Short: "Explain how a packet would be handled, or why a client does not reach an endpoint",
		Long: "Runs the data path's own program on a packet and prints each step with its reason, in order. The\n" +
			"last line is the verdict. Nothing is sent, and no connection or counter changes.\n\n" +
			"\"!\" before a line marks a warning, \"x\" the step that stops the packet.\n\n" +
			"Exits with 0 if the packet arrives, 4 if it is dropped or refused, or if the endpoint is\n" +
			"unreachable.\n\n" +
			"With --client and --endpoint (or with an endpoint's address in --to) it lists the services\n" +
			"through which the client reaches the endpoint, and why the other services do not.",
		Example: "  loxicmd explain --from 100.100.100.1:40000 --to 20.20.20.1:80\n" +
			"  loxicmd explain --from 100.100.100.1 --to 20.20.20.1:53 --proto udp --length 1400\n" +
			"  loxicmd explain --from 100.100.100.1 --to 20.20.20.1:443 --connection-id 070a1b2c3d4e5f60\n" +
			"  loxicmd explain --client 100.100.100.1 --endpoint 31.31.31.1",
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.Client()
			if err != nil {
				return err
			}
			body, err := o.Answer(client.Explain(cmd.Context(), params))
			if err != nil {
				return err
			}
			var answer v1.Explanation
			if err := session.Decode(body, &answer); err != nil {
				return err
			}
			if o.IsRaw() {
				err = o.PrintRaw(body)
			} else {
				var b strings.Builder
				write(&b, &answer)
				err = o.Print(b.String())
			}
			if err == nil && !arrives(&answer) {
				err = session.Exit(session.ExitNo, nil)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&params.From, "from", "", "source of the packet, IP or IP:PORT (default port 40000)")
	fs.StringVar(&params.To, "to", "", "destination of the packet, IP:PORT; for icmp only IP")
	fs.StringVar(&params.Client, "client", "", "client for --endpoint, IP or IP:PORT")
	fs.StringVar(&params.Endpoint, "endpoint", "", "endpoint of a service, IP or IP:PORT")
	fs.StringVar(&params.Proto, "proto", "", "tcp, udp, sctp or icmp (default tcp; with --client any)")
	fs.StringVar(&params.Interface, "interface", "", "interface that receives the packet (default: that of the route to its source)")
	fs.Uint32Var(&params.Mark, "mark", 0, "mark of the packet (skb->mark)")
	fs.StringVar(&params.ConnectionID, "connection-id", "", "QUIC connection ID of the packet, in hexadecimal: which endpoint it names (implies --proto udp)")
	fs.StringVar(&params.Teid, "teid", "", "TEID of the packet's GTP-U tunnel: which endpoint of a service with --select=n3 it gets (implies --proto udp)")
	fs.IntVar(&params.Length, "length", 0, "length of the IP packet in bytes, 60 to 3500 (default: headers only)")
	return cmd
}

// onlyFlags refuses arguments: users of other tools write the protocol and addresses without flags.
func onlyFlags(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("argument %q is not allowed: give the packet by --from and --to, "+
		"as in: loxicmd explain --from 100.100.100.1 --to 20.20.20.1:80", args[0])
}

// arrives reports whether the answer is that the packet arrives.
func arrives(a *v1.Explanation) bool {
	switch a.Verdict {
	case "refused", "dropped", "unreached":
		return false
	case "reached": // by one service at least
		return true
	}
	return !slices.ContainsFunc(a.Steps, func(s v1.ExplanationStep) bool { return s.State == "failed" })
}

// mark precedes a step, by its state.
func mark(state string) string {
	switch state {
	case "warning":
		return "! "
	case "failed":
		return "x "
	}
	return "  "
}

// write prints an answer: the question, a line for each step, the verdict.
func write(b *strings.Builder, a *v1.Explanation) {
	fmt.Fprintf(b, "%s\n", a.Question)
	for _, s := range a.Steps {
		fmt.Fprintf(b, "%s%-10s %s\n", mark(s.State), s.Stage, s.Text)
	}
	for i := range a.Paths {
		b.WriteString("\n")
		write(b, &a.Paths[i])
	}
	if len(a.Paths) > 0 {
		b.WriteString("\n")
	}
	if a.Hint != "" {
		fmt.Fprintf(b, "  %-10s %s\n", "fix", a.Hint)
	}
	fmt.Fprintf(b, "%s\n", a.Summary)
}
