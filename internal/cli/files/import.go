package files

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/manifest"
	"loxilb/internal/cli/importer"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

func importCommand(o *session.Options) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "import FORMAT FILE",
		Short: "Convert the configuration of another load balancer to a file for apply",
		Long: "FORMAT is ipvsadm (what ipvsadm -S -n prints), haproxy (haproxy.cfg: what is in mode tcp), keepalived (keepalived.conf: its virtual\n" +
			"servers) or nft (rules with dnat). FILE - is standard input. The services are printed as YAML that loxicmd apply -f takes; what cannot\n" +
			"be taken over is said on standard error, line by line. No server is asked.",
		Example: "  loxicmd import keepalived /etc/keepalived/keepalived.conf >services.yaml\n  ipvsadm -S -n | loxicmd import ipvsadm - | loxicmd apply -f -",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := readFile(o, args[1])
			if err != nil {
				return err
			}
			r, err := importer.Read(args[0], string(data))
			if err != nil {
				return err
			}
			for _, n := range r.Notes {
				fmt.Fprintf(o.Env.Stderr, "%s:%d: %s\n", args[1], n.Line, n.Text)
			}
			switch {
			case strict && len(r.Notes) > 0:
				return session.Refused("%d things cannot be taken over, and --strict was given: nothing is written", len(r.Notes))
			case len(r.Services) == 0:
				return session.Refused("%s: there is no service in it that can be taken over", args[1])
			}
			text, err := serviceDocuments(r.Services)
			if err != nil {
				return err
			}
			return o.Print(text)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "write nothing, and exit with 1, if anything cannot be taken over")
	return cmd
}

// serviceDocuments writes services as documents for apply.
func serviceDocuments(services []lb.Service) (string, error) {
	var b strings.Builder
	for i := range services {
		spec, err := yaml.Marshal(map[string]any{"apiVersion": "netlox/v1", "kind": "Loadbalancer", "spec": entryOf(&services[i])})
		if err != nil {
			return "", err
		}
		b.WriteString("---\n" + string(spec))
	}
	return b.String(), nil
}

// entryOf is a service as POST takes it, without what is at its default.
func entryOf(s *lb.Service) map[string]any {
	e := v1.LoadbalanceEntry{Endpoints: make([]v1.Endpoint, len(s.Endpoints))}
	entry, endpoint := v1.PropertiesOf[v1.LoadbalanceEntry](), v1.PropertiesOf[v1.Endpoint]()
	for _, f := range append(lb.KeyFields(), lb.Fields()...) {
		if f.Name != lb.FieldEndpoints && (f.Required || !f.IsDefault(s)) {
			entry.Of(f.Property).Set(&e, f.Value(s))
		}
	}
	for i := range s.Endpoints {
		for _, f := range lb.EndpointFields() {
			if f.Required || !f.IsDefault(&s.Endpoints[i]) {
				endpoint.Of(f.Property).Set(&e.Endpoints[i], f.Value(&s.Endpoints[i]))
			}
		}
	}
	var spec map[string]any
	if err := yaml.Unmarshal(session.Raw(e), &spec); err != nil {
		panic(err) // it was written by us
	}
	addWords(manifest.Loadbalancer, spec)
	return spec
}

func exportCommand(o *session.Options) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "export FORMAT",
		Short: "Write the services as configuration of another load balancer",
		Long: "FORMAT is ipvsadm: lines that ipvsadm -R reads. What IPVS does not have is said on standard error, with the line that it is about, or\n" +
			"before which it would be.",
		Example: "  loxicmd export ipvsadm",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "ipvsadm" {
				return fmt.Errorf("%q is no format that can be exported: ipvsadm", args[0])
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			body, err := o.Answer(client.GetLoadbalancers(cmd.Context(), &v1.GetLoadbalancersParams{}))
			if err != nil {
				return err
			}
			services, err := servicesOf(body)
			if err != nil {
				return err
			}
			text, notes := importer.IPVS(services)
			for _, n := range notes {
				fmt.Fprintf(o.Env.Stderr, "%d: %s\n", n.Line, n.Text)
			}
			if strict && len(notes) > 0 {
				return session.Refused("%d things cannot be said to IPVS, and --strict was given: nothing is written", len(notes))
			}
			return o.Print(text)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "write nothing, and exit with 1, if anything cannot be said")
	return cmd
}

// servicesOf reads the services that GET answers.
func servicesOf(body []byte) ([]lb.Service, error) {
	var list v1.LoadbalanceList
	if err := session.Decode(body, &list); err != nil {
		return nil, err
	}
	entry, endpoint := v1.PropertiesOf[v1.LoadbalanceEntry](), v1.PropertiesOf[v1.Endpoint]()
	services := make([]lb.Service, len(list.LbAttr))
	for i := range list.LbAttr {
		e, s := &list.LbAttr[i], &services[i]
		var errs []error
		for _, f := range append(lb.KeyFields(), lb.Fields()...) {
			if f.Name == lb.FieldEndpoints {
				continue
			}
			if p := entry.Of(f.Property); p.Given(e) {
				value, _ := p.Get(e)
				errs = append(errs, f.SetValue(s, value))
			}
		}
		s.Endpoints = make([]lb.Endpoint, len(e.Endpoints))
		for j := range e.Endpoints {
			for _, f := range lb.EndpointFields() {
				if p := endpoint.Of(f.Property); p.Given(&e.Endpoints[j]) {
					value, _ := p.Get(&e.Endpoints[j])
					errs = append(errs, f.SetValue(&s.Endpoints[j], value))
				}
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, session.Refused("the answer of the server is not understood: %w", err)
		}
	}
	return services, nil
}
