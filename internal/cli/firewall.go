package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// firewallAliases are the contract's.
func firewallAliases() []string { return []string{"fw", "firewalls", "Firewall"} }

// ruleFlagHelp explains --firewallRule.
func ruleFlagHelp() string {
	return "which packets, as KEY:VALUE,...: " + strings.Join(lb.RuleKeys(), ", ") + "; what is left out is any"
}

// firewallFlags are the flags of create firewall.
type firewallFlags struct {
	rule              string
	allow, drop, trap bool
	redirect, snat    string
	egress, force     bool
	mark              uint32
}

func createFirewall(o *options) *cobra.Command {
	f := &firewallFlags{}
	cmd := &cobra.Command{
		Use:     "firewall",
		Aliases: firewallAliases(),
		Short:   "have packets allowed, dropped, left to the kernel, sent elsewhere, marked, or given a source",
		Long: "Makes a firewall rule, or changes what the rule of these keys does. Of all rules that match a packet of no\n" +
			"connection, the first decides: the one of the highest preference; of one preference, the one that says more of\n" +
			"addresses, then of ports, of the protocol, of the interface. Connections that are established are judged once\n" +
			"more when rules change, and those that are dropped then end for both sides.",
		Example: "  loxicmd create firewall --firewallRule=sourceIP:1.2.3.0/24,preference:200 --drop\n" +
			"  loxicmd create fw --firewallRule=sourceIP:2001:db8::/32,minDestinationPort:443,protocol:tcp --allow --setmark=7\n" +
			"  loxicmd create fw --firewallRule=sourceIP:10.244.0.0/16 --snat=20.20.20.1 --egress",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			return o.created(o.answer(client.CreateFirewallRule(cmd.Context(), &v1.CreateFirewallRuleParams{Force: forced(f.force)}, req)))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.rule, "firewallRule", "", ruleFlagHelp())
	fs.BoolVar(&f.allow, "allow", false, "let them pass as if there were no rules")
	fs.BoolVar(&f.drop, "drop", false, "drop them")
	fs.BoolVar(&f.trap, "trap", false, "leave them to the kernel, whatever services say")
	fs.StringVar(&f.redirect, "redirect", "", "send them out by this interface, as they are")
	fs.StringVar(&f.snat, "snat", "", "give connections that go through this machine this source address, and a port of ours")
	fs.BoolVar(&f.egress, "egress", false, "with --snat: only those that leave by a default route")
	fs.Uint32Var(&f.mark, "setmark", 0, "mark that they get, by which services with --mark are found; 0: none")
	fs.BoolVar(&f.force, "force", false, "also if this cuts connections of the machine itself, as your ssh session")
	cmd.MarkFlagsMutuallyExclusive("allow", "drop", "trap", "redirect", "snat")
	return cmd
}

func (f *firewallFlags) request() (req v1.FirewallRequest, err error) {
	if req.RuleArguments, err = firewallArguments(f.rule); err != nil {
		return req, err
	}
	if !f.allow && !f.drop && !f.trap && f.redirect == "" && f.snat == "" && f.mark == 0 {
		return req, errors.New("what becomes of the packets? One of --allow, --drop, --trap, --redirect, --snat and --setmark")
	}
	if f.egress && f.snat == "" {
		return req, errors.New("--egress stands without --snat")
	}
	req.Opts = v1.FirewallOptions{
		Allow: f.allow, Drop: f.drop, Trap: f.trap, Redirect: f.redirect != "", RedirectPortName: f.redirect, DoSnat: f.snat != "", OnDefault: f.egress, FwMark: int64(f.mark),
	}
	ip, port, ok := strings.Cut(f.snat, ",")
	req.Opts.ToIP = ip
	if ok {
		if req.Opts.ToPort, err = strconv.Atoi(port); err != nil {
			return req, lb.NewFieldError("snat", f.snat, "has a port that is no number", "IP")
		}
	}
	return req, nil
}

// forced is --force as a query.
func forced(force bool) string {
	if !force {
		return ""
	}
	return "true"
}

// firewallArguments reads --firewallRule.
func firewallArguments(text string) (args v1.FirewallArguments, err error) {
	if text == "" {
		return args, errors.New("which packets? --firewallRule=KEY:VALUE,..., as in sourceIP:1.2.3.0/24; preference:0 alone is all of them")
	}
	rule, err := lb.ParseRuleKey(text)
	if err != nil {
		return args, err
	}
	prefix := func(valid bool, s fmt.Stringer) string {
		if !valid {
			return ""
		}
		return s.String()
	}
	return v1.FirewallArguments{
		SourceIP: prefix(rule.Source.IsValid(), rule.Source), DestinationIP: prefix(rule.Destination.IsValid(), rule.Destination),
		MinSourcePort: int(rule.SourcePorts.Min), MaxSourcePort: int(rule.SourcePorts.Max),
		MinDestinationPort: int(rule.DestinationPorts.Min), MaxDestinationPort: int(rule.DestinationPorts.Max),
		Protocol: int(rule.Protocol), MaxProtocol: int(rule.ProtocolMax), PortName: rule.Interface, Preference: int(rule.Preference),
	}, nil
}

func deleteFirewall(o *options) *cobra.Command {
	var rule string
	var all, force bool
	cmd := &cobra.Command{
		Use:     "firewall",
		Aliases: firewallAliases(),
		Short:   "delete a firewall rule, or all",
		Example: "  loxicmd delete firewall --firewallRule=sourceIP:1.2.3.0/24,preference:200\n  loxicmd delete fw --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (rule != "") {
				return errors.New("which rule? --firewallRule with its keys, or --all")
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			if all {
				body, err := o.answer(client.DeleteFirewallRules(cmd.Context()))
				if err != nil {
					return err
				}
				return o.done(body)
			}
			args, err := firewallArguments(rule)
			if err != nil {
				return err
			}
			params := deleteFirewallParams(&args)
			params.Force = forced(force)
			body, err := o.answer(client.DeleteFirewallRule(cmd.Context(), params))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
	cmd.Flags().StringVar(&rule, "firewallRule", "", ruleFlagHelp())
	cmd.Flags().BoolVar(&all, "all", false, "all rules")
	cmd.Flags().BoolVar(&force, "force", false, "also if the rules that are left cut connections of the machine itself, as your ssh session")
	return cmd
}

// deleteFirewallParams are the arguments as a query.
func deleteFirewallParams(a *v1.FirewallArguments) *v1.DeleteFirewallRuleParams {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	return &v1.DeleteFirewallRuleParams{
		SourceIP: a.SourceIP, DestinationIP: a.DestinationIP, MinSourcePort: number(a.MinSourcePort), MaxSourcePort: number(a.MaxSourcePort),
		MinDestinationPort: number(a.MinDestinationPort), MaxDestinationPort: number(a.MaxDestinationPort),
		Protocol: number(a.Protocol), MaxProtocol: number(a.MaxProtocol), PortName: a.PortName, Preference: number(a.Preference),
	}
}

func getFirewall(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "firewall",
		Aliases: firewallAliases(),
		Short:   "show firewall rules in the order in which they count; -o wide shows what they have decided about",
		Example: "  loxicmd get firewall\n  loxicmd get fw -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetFirewallRules(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.FirewallList
			if err := decode(body, &list); err != nil {
				return err
			}
			return o.print(firewallTable(list.FwAttr, o.output == "wide").String())
		},
	}
}

// firewallTable has the contract's columns.
func firewallTable(list []v1.FirewallRule, wide bool) *table {
	header := []string{"Source IP", "destination IP", "min SPort", "max SPort", "min DPort", "max DPort", "protocol", "port Name", "preference", "Option"}
	if wide {
		header = append(header, "Counters")
	}
	t := newTable(header...)
	for i := range list {
		a, opts := &list[i].RuleArguments, &list[i].Opts
		protocol := strconv.Itoa(a.Protocol)
		if a.MaxProtocol != 0 {
			protocol += "-" + strconv.Itoa(a.MaxProtocol)
		}
		row := []string{
			a.SourceIP, a.DestinationIP, strconv.Itoa(a.MinSourcePort), strconv.Itoa(a.MaxSourcePort), strconv.Itoa(a.MinDestinationPort),
			strconv.Itoa(a.MaxDestinationPort), protocol, a.PortName, strconv.Itoa(a.Preference), firewallOption(opts),
		}
		if wide {
			row = append(row, opts.Counter)
		}
		t.add(row...)
	}
	return t
}

// firewallOption is the contract's cell: the action, and what else becomes of the packet.
func firewallOption(o *v1.FirewallOptions) string {
	cell := "Allow"
	switch {
	case o.Drop:
		cell = "Drop"
	case o.Trap:
		cell = "Trap"
	case o.Redirect:
		cell = "Redirect(" + o.RedirectPortName + ")"
	case o.DoSnat:
		cell = "Snat(" + o.ToIP + ":" + strconv.Itoa(o.ToPort) + ")"
	}
	if o.Record {
		cell += ",Record"
	}
	if o.FwMark != 0 {
		cell += ",FwMark(" + strconv.FormatInt(o.FwMark, 10) + ")"
	}
	if o.OnDefault {
		cell += ",Egr"
	}
	return cell
}
