package diagnose

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// listing prints stats and rate, in the columns of ipvsadm -Ln --stats and --rate.
type listing struct {
	session  *session.Options
	columns  []string
	counters bool // counters, not rates
	exact    bool
	params   v1.GetServiceRatesParams
}

func statsCommand(o *session.Options) *cobra.Command {
	l := &listing{session: o, columns: []string{"Conns", "InPkts", "OutPkts", "InBytes", "OutBytes", "Active", "InAct", "Refused", "Failed"}, counters: true}
	return l.command(&cobra.Command{
		Use:   "stats [SERVICE]",
		Short: "Show counters of services and endpoints, like ipvsadm -Ln --stats",
		Long: "Prints connections, packets and bytes of services and their endpoints since they were created.\n" +
			"The columns of ipvsadm come first. Further columns show open and recently closed connections,\n" +
			"refused client packets with the reason, and failed handshakes. SERVICE is a key, such as\n" +
			"20.20.20.1:2020/tcp, or any part of a key or name.",
		Example: "  loxicmd stats\n  loxicmd stats web --exact\n  loxicmd stats 20.20.20.1:2020/tcp -o json",
	})
}

func rateCommand(o *session.Options) *cobra.Command {
	l := &listing{session: o, columns: []string{"CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"}}
	return l.command(&cobra.Command{
		Use:   "rate [SERVICE]",
		Short: "Show connections, packets and bytes per second, like ipvsadm -Ln --rate",
		Long: "Prints connections, packets and bytes (not bits) per second of services and their endpoints. The\n" +
			"first line shows the measured interval. SERVICE is a key, such as 20.20.20.1:2020/tcp, or any\n" +
			"part of a key or name. loxicmd top updates every second.",
		Example: "  loxicmd rate\n  loxicmd rate --sort=bytes --limit=10\n  loxicmd rate web -o json",
	})
}

func (l *listing) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if _, err := lb.ParseKey(args[0]); err == nil {
				l.params.Service = args[0]
			} else {
				l.params.Match = args[0]
			}
		}
		return l.run(cmd)
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&l.exact, "exact", false, "print exact numbers instead of 123M")
	fs.StringVar(&l.params.Sort, "sort", "", "sort by a rate, largest first: "+orders+"; or by key or name")
	fs.IntVar(&l.params.Limit, "limit", 0, "show only the first N services; 0 shows all")
	return cmd
}

// orders are the sort orders of services.
const orders = "connections, packets, bytes, packetsIn, packetsOut, bytesIn, bytesOut, repeatedSyns, failedHandshakes, active, down"

// checkSort refuses an unknown order. "": the server's default.
func checkSort(word string) error {
	if word != "" && !slices.Contains(strings.Split(orders+", key, name", ", "), word) {
		return fmt.Errorf("--sort %q is not known%s (allowed: %s, key, name)", word, lb.DidYouMean(word, strings.Split(orders, ", ")), orders)
	}
	return nil
}

func (l *listing) run(cmd *cobra.Command) error {
	if err := errors.Join(session.AtLeast(0, "limit", l.params.Limit), checkSort(l.params.Sort)); err != nil {
		return err
	}
	client, err := l.session.Client()
	if err != nil {
		return err
	}
	l.params.Endpoints, l.params.Counters = true, l.counters
	body, err := l.session.Answer(client.GetServiceRates(cmd.Context(), &l.params))
	if err != nil {
		return err
	}
	var list v1.ServiceRatesList
	if err := session.Decode(body, &list); err != nil {
		return err
	}
	if err := noMatch(l.params.Match, list.Matched); err != nil {
		return err
	}
	if l.session.IsRaw() {
		return l.session.PrintRaw(body)
	}
	return l.session.Print(l.text(&list))
}

// noMatch returns the error for a service that does not exist.
func noMatch(match string, matched int) error {
	if match == "" || matched > 0 {
		return nil
	}
	return session.Refused("service %q not found: give a key such as 20.20.20.1:2020/tcp, or part of a key or name", match)
}

// text returns the listing. It has three lines of heading, as ipvsadm's has.
func (l *listing) text(list *v1.ServiceRatesList) string {
	var b strings.Builder
	if l.counters {
		fmt.Fprintf(&b, "loxilb: %s, counted so far\n", services(list.Matched))
	} else {
		fmt.Fprintf(&b, "loxilb: %s, a second, over the last %.1f s\n", services(list.Matched), list.Seconds)
	}
	fmt.Fprintf(&b, "%-33s", "Prot LocalAddress:Port")
	for _, c := range l.columns {
		fmt.Fprintf(&b, " %8s", c)
	}
	b.WriteString("\n  -> RemoteAddress:Port\n")
	for i := range list.Services {
		s := &list.Services[i]
		at, protocol, _ := strings.Cut(s.Service, "/")
		protocol, mark, marked := strings.Cut(protocol, "/")
		if marked {
			at += "/" + mark
		}
		fmt.Fprintf(&b, "%-33s", fmt.Sprintf("%-5s%s", strings.ToUpper(protocol), at))
		l.numbers(&b, &s.Rates, s.Counters)
		if l.counters && s.Counters != nil && s.Counters.Refused > 0 {
			fmt.Fprintf(&b, "     refused: %s\n", session.Reasons(s.Counters.RefusedBy))
		}
		for j := range s.Endpoints {
			e := &s.Endpoints[j]
			fmt.Fprintf(&b, "  -> %-28s", e.Endpoint)
			l.numbers(&b, &e.Rates, e.Counters)
		}
	}
	return b.String()
}

func (l *listing) numbers(b *strings.Builder, r *v1.Rates, c *v1.Counters) {
	var n []uint64
	if l.counters && c != nil {
		n = []uint64{c.Connections, c.PacketsIn, c.PacketsOut, c.BytesIn, c.BytesOut, c.Active, c.Inactive, c.Refused, c.FailedHandshakes}
	} else {
		for _, f := range []float32{r.Connections, r.PacketsIn, r.PacketsOut, r.BytesIn, r.BytesOut} {
			n = append(n, uint64(math.Round(float64(f))))
		}
	}
	for _, n := range n {
		if l.exact {
			fmt.Fprintf(b, " %8d", n)
		} else {
			b.WriteString(large(n))
		}
	}
	b.WriteByte('\n')
}

// large returns a number in nine places, as ipvsadm writes it.
func large(n uint64) string {
	switch {
	case n < 1e8:
		return fmt.Sprintf("%9d", n)
	case n < 1e9:
		return fmt.Sprintf("%8dK", n/1e3)
	case n < 1e11:
		return fmt.Sprintf("%8dM", n/1e6)
	case n < 1e14:
		return fmt.Sprintf("%8dG", n/1e9)
	}
	return fmt.Sprintf("%8dT", n/1e12)
}

// services describes a number of services.
func services(n int) string {
	if n == 1 {
		return "1 service"
	}
	return fmt.Sprintf("%d services", n)
}
