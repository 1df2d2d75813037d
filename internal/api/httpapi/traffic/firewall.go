package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// CreateFirewallRule creates or changes one rule, or the many of fwAttr in one transaction.
func (a *API) CreateFirewallRule(w http.ResponseWriter, r *http.Request, _ v1.CreateFirewallRuleParams) {
	var bulk bool
	list, p := rest.DecodeLenient(a.Reader, w, r, func(data []byte) (list []policy.Rule, p *rest.Problem) {
		list, bulk, p = decodeRules(data)
		return list, p
	})
	if p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, !bulk, func(tx *store.Tx, pre *objects.Precondition) error {
		for _, rule := range list {
			if !bulk {
				if err := pre.Check(tx, a.Store.Rules, rule.Key()); err != nil {
					return err
				}
			}
			if err := a.Store.Rules.Put(tx, rule); err != nil {
				return err
			}
		}
		if !bulk && !tx.Changed() {
			p := a.Objects.Exists("firewall rule", a.Store.Rules.ID(list[0].Key()))
			p.Body.Result = compat.RuleExists
			return p
		}
		return nil
	})
}

// decodeRules reads and checks a request without looking at the store.
func decodeRules(data []byte) (list []policy.Rule, bulk bool, p *rest.Problem) {
	req, p := rest.Unmarshal[v1.FirewallRequest](data)
	if p != nil {
		return nil, false, p
	}
	if req.FwAttr == nil {
		rule, err := ruleOf(&req.RuleArguments, &req.Opts)
		if err != nil {
			return nil, false, ruleProblem("", err)
		}
		return []policy.Rule{rule}, false, nil
	}
	if req.RuleArguments != (v1.FirewallArguments{}) || req.Opts != (v1.FirewallOptions{}) {
		return nil, true, rest.Refuse(http.StatusBadRequest, "fwAttr cannot be combined with another property: write either one rule or fwAttr alone")
	}
	first := make(map[string]int, len(req.FwAttr))
	for i := range req.FwAttr {
		at := fmt.Sprintf("fwAttr[%d]", i)
		rule, err := ruleOf(&req.FwAttr[i].RuleArguments, &req.FwAttr[i].Opts)
		if err != nil {
			return nil, true, ruleProblem(at+".", err)
		}
		key := rule.Key()
		if j, there := first[key]; there {
			return nil, true, rest.RefuseField(http.StatusBadRequest, at, key, fmt.Sprintf("is given twice, in fwAttr[%d] and %s", j, at), "each rule once")
		}
		first[key] = i
		list = append(list, rule)
	}
	return list, true, nil
}

// ruleOf returns the rule that arguments and options describe.
func ruleOf(args *v1.FirewallArguments, opts *v1.FirewallOptions) (rule policy.Rule, err error) {
	if rule, err = ruleKeyOf(args); err != nil {
		return rule, err
	}
	if rule.RuleVerdict, err = verdictOf(opts); err != nil {
		return rule, err
	}
	if opts.FwMark < 0 || opts.FwMark > 1<<32-1 {
		return rule, lb.NewFieldError(policy.FieldRuleMark, strconv.FormatInt(opts.FwMark, 10), "is out of range", "0 to 4294967295")
	}
	rule.Mark = uint32(opts.FwMark)
	return rule, rule.Validate()
}

// ruleKeyOf returns the packet selectors of the arguments, normalized.
func ruleKeyOf(args *v1.FirewallArguments) (rule policy.Rule, err error) {
	prefix := func(to *netip.Prefix, field, s string) {
		if s != "" && err == nil {
			*to, err = lb.ParsePrefix(field, s)
		}
	}
	number := func(field string, n, most int) int {
		if err == nil && (n < 0 || n > most) {
			err = lb.NewFieldError(field, strconv.Itoa(n), "is out of range", "0 to "+strconv.Itoa(most))
		}
		return n
	}
	port := func(field string, n int) uint16 { return uint16(number(field, n, 65535)) }
	prefix(&rule.Source, policy.FieldRuleSource, args.SourceIP)
	prefix(&rule.Destination, policy.FieldRuleDestination, args.DestinationIP)
	rule.SourcePorts = policy.RulePorts{Min: port(policy.FieldRuleMinSourcePort, args.MinSourcePort), Max: port(policy.FieldRuleMaxSourcePort, args.MaxSourcePort)}
	rule.DestinationPorts = policy.RulePorts{
		Min: port(policy.FieldRuleMinDestinationPort, args.MinDestinationPort), Max: port(policy.FieldRuleMaxDestinationPort, args.MaxDestinationPort),
	}
	rule.Protocol = uint8(number(policy.FieldRuleProtocol, args.Protocol, 255))
	rule.ProtocolMax = uint8(number(policy.FieldRuleProtocolMax, args.MaxProtocol, 255))
	rule.Interface = args.PortName
	rule.Preference = port(policy.FieldRulePreference, args.Preference)
	return rule.Normal(), err
}

// verdictOf returns the only action in the options.
func verdictOf(opts *v1.FirewallOptions) (v policy.RuleVerdict, err error) {
	chosen := ""
	for _, o := range []struct {
		name   string
		on     bool
		action policy.RuleAction
	}{
		{"allow", opts.Allow, policy.RuleAllow}, {"drop", opts.Drop, policy.RuleDrop}, {"trap", opts.Trap, policy.RuleTrap},
		{"redirect", opts.Redirect, policy.RuleRedirect}, {"doSnat", opts.DoSnat, policy.RuleSNAT},
	} {
		if !o.on {
			continue
		}
		if chosen != "" {
			return v, lb.NewFieldError(o.name, "true", "cannot be combined with "+chosen, "one action")
		}
		v.Action, chosen = o.action, o.name
	}
	v.Record = opts.Record
	switch {
	case opts.ToPort != 0:
		return v, lb.NewFieldError("toPort", strconv.Itoa(opts.ToPort), "is a port of our choice: several connections cannot share one", "0")
	case v.Action == policy.RuleRedirect:
		v.ToInterface = opts.RedirectPortName
	case v.Action == policy.RuleSNAT:
		v.OnDefault = opts.OnDefault
		v.ToSource, err = lb.ParseAddr(policy.FieldRuleToSource, opts.ToIP)
	}
	return v, err
}

func ruleProblem(at string, err error) *rest.Problem {
	var fe *lb.FieldError
	if !errors.As(err, &fe) {
		return rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	return rest.RefuseError(http.StatusBadRequest, rest.Renamed(at+fe.Field, fe))
}

// DeleteFirewallRule deletes the rule with a key. Deleting a missing rule succeeds.
func (a *API) DeleteFirewallRule(w http.ResponseWriter, r *http.Request, params v1.DeleteFirewallRuleParams) {
	if p := rest.RefuseUnknownParameters(r, params); p != nil {
		p.Write(w)
		return
	}
	rule, err := ruleOfQuery(&params)
	if err != nil {
		ruleProblem("", err).Write(w)
		return
	}
	key := rule.Key()
	a.Objects.Commit(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Rules, key); err != nil {
			return err
		}
		var notes rest.Warnings
		defer func() { notes.Write(w) }()
		return objects.DeleteObject(tx, a.Store.Rules.ID(key), &notes)
	})
}

// ruleOfQuery returns the key that the parameters of DELETE name.
func ruleOfQuery(q *v1.DeleteFirewallRuleParams) (rule policy.Rule, err error) {
	args := v1.FirewallArguments{SourceIP: q.SourceIP, DestinationIP: q.DestinationIP, PortName: q.PortName}
	for _, n := range []struct {
		field, value string
		to           *int
	}{
		{policy.FieldRuleMinSourcePort, q.MinSourcePort, &args.MinSourcePort}, {policy.FieldRuleMaxSourcePort, q.MaxSourcePort, &args.MaxSourcePort},
		{policy.FieldRuleMinDestinationPort, q.MinDestinationPort, &args.MinDestinationPort},
		{policy.FieldRuleMaxDestinationPort, q.MaxDestinationPort, &args.MaxDestinationPort},
		{policy.FieldRuleProtocol, q.Protocol, &args.Protocol}, {policy.FieldRuleProtocolMax, q.MaxProtocol, &args.MaxProtocol},
		{policy.FieldRulePreference, q.Preference, &args.Preference},
	} {
		if n.value == "" {
			continue
		}
		if *n.to, err = strconv.Atoi(n.value); err != nil {
			return rule, lb.NewFieldError(n.field, n.value, "is not a number", "0 or more")
		}
	}
	return ruleKeyOf(&args)
}

// DeleteFirewallRules deletes every rule.
func (a *API) DeleteFirewallRules(w http.ResponseWriter, r *http.Request) {
	if p := rest.RefuseUnknownParameters(r, nil); p != nil {
		p.Write(w)
		return
	}
	a.Objects.Commit(w, r, false, func(tx *store.Tx, _ *objects.Precondition) error {
		for rule := range a.Store.Rules.All(tx) {
			if err := tx.Delete(a.Store.Rules.ID(rule.Key())); err != nil {
				return err
			}
		}
		return nil
	})
}

// GetFirewallRules replies with all rules, in the order in which they apply.
func (a *API) GetFirewallRules(w http.ResponseWriter, r *http.Request) {
	list := slices.Collect(a.Store.Rules.All(a.Store.Snapshot()))
	slices.SortFunc(list, func(a, b policy.Rule) int { return policy.CompareRules(&a, &b) })
	out := rest.NewList(w, "fwAttr")
	for i := range list {
		hits, _ := a.DataPath.RuleHits(&list[i])
		if r.Context().Err() != nil || !out.Item(ruleAnswer(&list[i], hits)) {
			return
		}
	}
	out.End()
}

// ruleAnswer returns a rule in a form that can be posted again.
func ruleAnswer(r *policy.Rule, hits report.Traffic) *v1.FirewallRule {
	args := v1.FirewallArguments{
		SourceIP: prefixText(r.Source, r.Destination), DestinationIP: prefixText(r.Destination, r.Source),
		MinSourcePort: int(r.SourcePorts.Min), MaxSourcePort: int(r.SourcePorts.Max),
		MinDestinationPort: int(r.DestinationPorts.Min), MaxDestinationPort: int(r.DestinationPorts.Max),
		Protocol: int(r.Protocol), MaxProtocol: int(r.ProtocolMax), PortName: r.Interface, Preference: int(r.Preference),
	}
	opts := v1.FirewallOptions{
		Allow: r.Action == policy.RuleAllow, Drop: r.Action == policy.RuleDrop, Trap: r.Action == policy.RuleTrap,
		Redirect: r.Action == policy.RuleRedirect, RedirectPortName: r.ToInterface, DoSnat: r.Action == policy.RuleSNAT, OnDefault: r.OnDefault, FwMark: int64(r.Mark), Record: r.Record,
		Counter: strconv.FormatUint(hits.Packets, 10) + ":" + strconv.FormatUint(hits.Bytes, 10),
	}
	if r.Action == policy.RuleSNAT {
		opts.ToIP = r.ToSource.String()
	}
	return &v1.FirewallRule{RuleArguments: args, Opts: opts}
}

// prefixText formats "any address" like the existing loxilb, if the other prefix determines the IP
// version.
func prefixText(p, other netip.Prefix) string {
	switch {
	case p.IsValid():
		return p.String()
	case !other.IsValid():
		return ""
	case other.Addr().Is4():
		return "0.0.0.0/0"
	}
	return "::/0"
}

// readRule reads a rule of a list.
func readRule(spec []byte) (rule policy.Rule, p *rest.Problem) {
	body, p := rest.UnmarshalStrict[v1.FirewallRule](spec)
	if p != nil {
		return rule, p
	}
	rule, err := ruleOf(&body.RuleArguments, &body.Opts)
	if err == nil {
		return rule, nil
	}
	p = ruleProblem("", err)
	if _, argument := rest.MemberOf(reflect.TypeFor[v1.FirewallArguments](), p.Body.Field); argument {
		p.Body.Field = "ruleArguments." + p.Body.Field
	} else {
		p.Body.Field = "opts." + p.Body.Field
	}
	return rule, p
}

// showRule returns a rule as a POST body.
func showRule(r *policy.Rule) any {
	out := ruleAnswer(r, report.Traffic{})
	out.Opts.Counter = ""
	return out
}

// ReadBootRule reads a rule from a POST body.
func (a *API) ReadBootRule(data []byte) (objects.Edit, *rest.Problem) {
	list, _, p := decodeRules(data)
	if p != nil {
		return nil, p
	}
	return func(tx *store.Tx, _ *rest.Warnings) error {
		for _, rule := range list {
			if err := a.Store.Rules.Put(tx, rule); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
