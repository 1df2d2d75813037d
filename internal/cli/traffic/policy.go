package traffic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/policy"
)

// policyFlags are the flags of create policy.
type policyFlags struct {
	rate, target, block, direction string
	color                          bool
	kind                           string
}

func createPolicy(o *session.Options) *cobra.Command {
	f := &policyFlags{}
	cmd := &cobra.Command{
		Use:     "policy IDENT",
		Aliases: kinds.Policer().Aliases,
		Short:   "Limit the rate of an interface, service, client or firewall rule",
		Long: "Drops packets beyond a rate, also of existing connections. Rates are in Mbit/s, or have a unit:\n" +
			"bit, kbit, mbit, gbit, pps, kpps, mpps. A two-rate policer (RFC 2698) drops packets beyond the\n" +
			"peak rate, and counts those beyond the committed rate as yellow. A single-rate policer (RFC\n" +
			"2697) drops packets beyond its two bursts. An interface, service, client prefix or rule has one\n" +
			"policer per direction. A packet must pass all of its policers; of client prefixes the longest\n" +
			"counts.",
		Example: "  loxicmd create policy pol-hs0 --rate=100:100 --target=hs0:1\n" +
			"  loxicmd create policy web --rate=20mbit:10kbit --target=10.0.0.1:80/tcp:service --direction=both\n" +
			"  loxicmd create policy dns --rate=0:5000pps --pol-type=1 --target=10.1.0.0/16:source\n" +
			"  loxicmd create policy guests --rate=20:10 --target=portName:eth2,preference:5:firewall",
		Args: session.Exactly("its name, as in: loxicmd create policy pol-hs0 --rate=100:100 --target=hs0:1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.request(args[0])
			if err != nil {
				return err
			}
			return o.CreateAt(cmd.Context(), kinds.Policer(), &body)
		},
		Annotations: map[string]string{
			"committedInfoRate": "--rate", "peakInfoRate": "--rate", "committedBlkSize": "--block-size", "excessBlkSize": "--block-size",
			"type": "--pol-type", "polObjName": "--target", "attachment": "--target",
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.rate, "rate", "", "PEAK:COMMITTED, such as 100:50, 1.5gbit:10kbit or 5000pps:1000pps; --pol-type=1 ignores PEAK")
	fs.StringVar(&f.target, "target", "", "OBJECT:ATTACHMENT: an interface with 1 or port; a service's name or IP:PORT/PROTOCOL with 2 or service; a client prefix with 3 or source; a firewall rule's key with 4 or firewall")
	fs.StringVar(&f.block, "block-size", "", "bursts as EXCESS:COMMITTED, in bytes (in packets for packet rates); 0 or absent is 100 ms of the rate, at least 15000 bytes")
	fs.BoolVar(&f.color, "color", false, "treat the color in the DSCP as an upper bound (AFx2 yellow, AFx3 red)")
	fs.StringVar(&f.kind, "pol-type", "0", "0 or trTCM: two rates (RFC 2698); 1 or srTCM: one rate (RFC 2697)")
	_ = cmd.RegisterFlagCompletionFunc("pol-type", cobra.FixedCompletions([]string{policy.PolicerTypeWord(false), policy.PolicerTypeWord(true)}, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	fs.StringVar(&f.direction, "direction", "", "in (to endpoints, the default), out or both; not for interfaces")
	_ = cmd.MarkFlagRequired("rate")
	_ = cmd.MarkFlagRequired("target")
	return cmd
}

func (f *policyFlags) request(name string) (body v1.Policy, err error) {
	peak, committed, found := strings.Cut(f.rate, ":")
	if !found {
		return body, fmt.Errorf("--rate %q has no colon: use PEAK:COMMITTED, such as --rate=100:50", f.rate)
	}
	body.PolicyIdent = name
	info := &body.PolicyInfo
	oneRate, err := policy.ParsePolicerType(f.kind)
	if err != nil {
		return body, fmt.Errorf("--pol-type: %w", err)
	}
	if info.ColorAware = f.color; oneRate {
		info.Type = 1
	}
	if err := setRate("--rate", committed, &info.CommittedRate, &info.CommittedInfoRate); err != nil {
		return body, err
	}
	if !oneRate {
		if err := setRate("--rate", peak, &info.PeakRate, &info.PeakInfoRate); err != nil {
			return body, err
		}
	}
	if f.block != "" {
		if info.ExcessBlkSize, info.CommittedBlkSize, err = numberPair("--block-size", f.block); err != nil {
			return body, err
		}
	}
	name, to, err := splitTarget("--target", f.target)
	body.TargetObject = v1.PolicyTarget{Attachment: int(to), PolObjName: name, Direction: f.direction}
	return body, err
}

// setRate sets a rate in Mbit/s by the contract's property, which any server supports.
func setRate(flag, text string, unit *string, megabits *float64) error {
	r, err := policy.ParseRate(flag, text)
	if err != nil {
		return err
	}
	if *megabits = r.Megabits(); r.Packets || *megabits != float64(int64(*megabits)) {
		*unit = text
	}
	return nil
}

// numberPair parses two numbers that are separated by a colon.
func numberPair(flag, text string) (first, second int64, err error) {
	a, b, found := strings.Cut(text, ":")
	first, err1 := strconv.ParseInt(a, 10, 64)
	second, err2 := strconv.ParseInt(b, 10, 64)
	if !found || err1 != nil || err2 != nil || first < 0 || second < 0 {
		return 0, 0, fmt.Errorf("%s %q is not two numbers separated by a colon, such as %s=12000:6000", flag, text, flag)
	}
	return first, second, nil
}

// splitTarget parses OBJECT:ATTACHMENT; the object may have colons.
func splitTarget(flag, text string) (name string, to policy.AttachTo, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", 0, fmt.Errorf("%s %q has no attachment: use OBJECT:ATTACHMENT, such as %s=eth0:1", flag, text, flag)
	}
	if to, err = policy.ParseAttachTo(text[i+1:]); err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	return text[:i], to, err
}
