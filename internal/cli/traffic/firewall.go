package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
)

// ruleFlagHelp explains --firewallRule.
func ruleFlagHelp() string {
	return "packets to match, as KEY:VALUE,...: " + strings.Join(policy.RuleKeys(), ", ") + "; omitted keys match any packet"
}

// firewallFlags are the flags of create firewall.
type firewallFlags struct {
	rule              string
	allow, drop, trap bool
	redirect, snat    string
	egress, force     bool
	record            bool
	mark              uint32
}

func createFirewall(o *session.Options) *cobra.Command {
	f := &firewallFlags{}
	cmd := &cobra.Command{
		Use:     "firewall",
		Aliases: kinds.Rule().Aliases,
		Short:   "Create a firewall rule: allow, drop, trap, redirect, mark or SNAT packets",
		Long: "Creates a firewall rule, or changes the action of the rule with these keys. New connections are\n" +
			"decided by the matching rule with the highest preference. At equal preference, the more specific\n" +
			"rule wins: by addresses, then ports, protocol and interface. When rules change, established\n" +
			"connections are evaluated again; a connection that is now dropped ends for both sides.",
		Example: "  loxicmd create firewall --firewallRule=sourceIP:1.2.3.0/24,preference:200 --drop\n" +
			"  loxicmd create fw --firewallRule=sourceIP:2001:db8::/32,minDestinationPort:443,protocol:tcp --allow --setmark=7\n" +
			"  loxicmd create fw --firewallRule=sourceIP:10.244.0.0/16 --snat=20.20.20.1 --egress",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{"toIP": "--snat", "toPort": "--snat", "redirectPortName": "--redirect", "fwMark": "--setmark"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateFirewallRule(ctx, &v1.CreateFirewallRuleParams{Force: session.ForceText(f.force)}, req)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.rule, "firewallRule", "", ruleFlagHelp())
	fs.BoolVar(&f.allow, "allow", false, "let the packets pass as if there were no rules")
	fs.BoolVar(&f.drop, "drop", false, "drop the packets")
	fs.BoolVar(&f.trap, "trap", false, "leave the packets to the kernel, bypassing services")
	fs.StringVar(&f.redirect, "redirect", "", "send the packets unchanged out of this interface")
	fs.StringVar(&f.snat, "snat", "", "translate forwarded connections to this source address, with a port chosen by loxilb")
	fs.BoolVar(&f.egress, "egress", false, "with --snat: only connections that leave by a default route")
	fs.Uint32Var(&f.mark, "setmark", 0, "set this mark on the packets, which services with --mark match; 0 sets none")
	fs.BoolVar(&f.record, "record", false, "record the first packets of each second in pcap files")
	fs.BoolVar(&f.force, "force", false, "proceed even if this cuts connections of the machine itself, such as your SSH session")
	cmd.MarkFlagsMutuallyExclusive("allow", "drop", "trap", "redirect", "snat")
	return cmd
}

func (f *firewallFlags) request() (req v1.FirewallRequest, err error) {
	if req.RuleArguments, err = firewallArguments(f.rule); err != nil {
		return req, err
	}
	if !f.allow && !f.drop && !f.trap && f.redirect == "" && f.snat == "" && f.mark == 0 && !f.record {
		return req, errors.New("no action given: use --allow, --drop, --trap, --redirect, --snat, --setmark or --record")
	}
	if f.egress && f.snat == "" {
		return req, errors.New("--egress needs --snat")
	}
	req.Opts = v1.FirewallOptions{
		Allow: f.allow, Drop: f.drop, Trap: f.trap, Redirect: f.redirect != "", RedirectPortName: f.redirect, DoSnat: f.snat != "", OnDefault: f.egress, FwMark: int64(f.mark), Record: f.record,
	}
	ip, port, ok := strings.Cut(f.snat, ",")
	req.Opts.ToIP = ip
	if ok {
		if req.Opts.ToPort, err = strconv.Atoi(port); err != nil {
			return req, lb.NewFieldError("--snat", f.snat, "has a port that is not a number", "IP")
		}
	}
	return req, nil
}

// firewallArguments reads --firewallRule.
func firewallArguments(text string) (args v1.FirewallArguments, err error) {
	if text == "" {
		return args, errors.New("no packets selected: use --firewallRule=KEY:VALUE,..., such as sourceIP:1.2.3.0/24; preference:0 alone matches all")
	}
	rule, err := policy.ParseRuleKey(text)
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

func deleteFirewall(o *session.Options) *cobra.Command {
	var rule string
	var all session.AllFlags
	var force bool
	cmd := &cobra.Command{
		Use:     "firewall",
		Aliases: kinds.Rule().Aliases,
		Short:   "Delete a firewall rule, or all of them",
		Example: "  loxicmd delete firewall --firewallRule=sourceIP:1.2.3.0/24,preference:200\n  loxicmd delete fw --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all.All == (rule != "") {
				return errors.New("no rule selected: use --firewallRule with its keys, or --all")
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			if all.All {
				return deleteAllRules(cmd, o, client, &all)
			}
			args, err := firewallArguments(rule)
			if err != nil {
				return err
			}
			params := deleteFirewallParams(&args)
			params.Force = session.ForceText(force)
			body, err := o.Answer(client.DeleteFirewallRule(cmd.Context(), params))
			if err != nil {
				return err
			}
			return o.Done(body)
		},
	}
	cmd.Flags().StringVar(&rule, "firewallRule", "", ruleFlagHelp())
	all.Register(cmd.Flags(), "delete all rules; asks first at a terminal")
	cmd.Flags().BoolVar(&force, "force", false, "proceed even if the remaining rules cut connections of the machine itself, such as your SSH session")
	return cmd
}

// deleteAllRules deletes every rule, and reports their number.
func deleteAllRules(cmd *cobra.Command, o *session.Options, client *v1.Client, all *session.AllFlags) error {
	answer, err := o.Answer(client.GetFirewallRules(cmd.Context()))
	if err != nil {
		return err
	}
	var list v1.FirewallList
	count := -1 // not known
	if session.Decode(answer, &list) == nil {
		count = len(list.FwAttr)
	}
	if err := all.Agreed(o, count, "firewall rule"); err != nil {
		return err
	}
	body, err := o.Answer(client.DeleteFirewallRules(cmd.Context()))
	if err != nil {
		return err
	}
	return o.Deleted(body, count, "firewall rule")
}

// deleteFirewallParams returns the arguments as a query.
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

func firewallKind(o *session.Options) session.Kind[v1.FirewallList, v1.FirewallRule] {
	return session.Kind[v1.FirewallList, v1.FirewallRule]{
		Word: "firewall", Aliases: kinds.Rule().Aliases,
		GetHelp:      session.Help{Short: "Show firewall rules in order of evaluation; -o wide shows their counters", Example: "  loxicmd get firewall\n  loxicmd get fw -o wide"},
		DescribeHelp: session.Help{Short: "Show a firewall rule in full, with its status and events", Example: "  loxicmd describe firewall"},
		Key:          "fwAttr", Object: "firewall", Fetch: (*v1.Client).GetFirewallRules,
		Items:      func(l *v1.FirewallList) *[]v1.FirewallRule { return &l.FwAttr },
		Name:       func(d *v1.FirewallRule) string { return ruleName(&d.RuleArguments) },
		OtherNames: func(d *v1.FirewallRule) []string { return []string{strconv.Itoa(d.RuleArguments.Preference)} },
		Draw: func(list *v1.FirewallList) *session.Table {
			return firewallTable(list.FwAttr, o.Output == "wide")
		},
	}
}

// ruleName returns a rule as --firewallRule takes it, and as statuses and events name it.
func ruleName(a *v1.FirewallArguments) string {
	var parts []string
	add := func(name, value string) {
		if value != "" && value != "0" && value != "0.0.0.0/0" && value != "::/0" {
			parts = append(parts, name+":"+value)
		}
	}
	add(policy.FieldRuleSource, a.SourceIP)
	add(policy.FieldRuleDestination, a.DestinationIP)
	add(policy.FieldRuleMinSourcePort, strconv.Itoa(a.MinSourcePort))
	add(policy.FieldRuleMaxSourcePort, strconv.Itoa(a.MaxSourcePort))
	add(policy.FieldRuleMinDestinationPort, strconv.Itoa(a.MinDestinationPort))
	add(policy.FieldRuleMaxDestinationPort, strconv.Itoa(a.MaxDestinationPort))
	add(policy.FieldRuleProtocol, strconv.Itoa(a.Protocol))
	add(policy.FieldRuleProtocolMax, strconv.Itoa(a.MaxProtocol))
	add(policy.FieldRuleInterface, a.PortName)
	if a.Preference != 0 || len(parts) == 0 {
		parts = append(parts, policy.FieldRulePreference+":"+strconv.Itoa(a.Preference))
	}
	return strings.Join(parts, ",")
}

// firewallTable has the contract's columns.
func firewallTable(list []v1.FirewallRule, wide bool) *session.Table {
	header := []string{"Source IP", "destination IP", "min SPort", "max SPort", "min DPort", "max DPort", "protocol", "port Name", "preference", "Option"}
	if wide {
		header = append(header, "Counters")
	}
	t := session.NewTable(header...)
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
		t.Add(row...)
	}
	return t
}

// firewallOption returns the contract's cell: the action and its options.
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
