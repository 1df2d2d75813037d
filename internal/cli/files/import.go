package files

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/importer"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func importCommand(o *session.Options) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "import FORMAT FILE",
		Short: "Convert the configuration of another load balancer to a file for apply",
		Long: "Converts services to YAML for loxicmd apply -f. FORMAT is ipvsadm (output of ipvsadm -S -n),\n" +
			"haproxy (haproxy.cfg, mode tcp), keepalived (keepalived.conf, virtual servers) or nft (rules\n" +
			"with dnat). FILE - is standard input. Lines that cannot be converted are reported on standard\n" +
			"error. No server is contacted.",
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
				return session.Refused("%d items cannot be converted: nothing written, because of --strict", len(r.Notes))
			case len(r.Services) == 0:
				return session.Refused("%s contains no service that can be converted", args[1])
			}
			text, err := serviceDocuments(r.Services)
			if err != nil {
				return err
			}
			return o.Print(text)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail and write nothing if a line cannot be converted")
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

// entryOf returns a service as a POST body, without defaults.
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
	addWords(kinds.ServiceDocument, spec)
	return spec
}

func exportCommand(o *session.Options) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "export FORMAT",
		Short: "Write the services as configuration of another load balancer",
		Long: "Writes the services in FORMAT, which is ipvsadm: lines for ipvsadm -R. Features that IPVS lacks\n" +
			"are reported on standard error, with the line that they concern or precede.",
		Example: "  loxicmd export ipvsadm",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "ipvsadm" {
				return fmt.Errorf("export format %q is unknown (allowed: ipvsadm)", args[0])
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
				return session.Refused("%d items cannot be exported to IPVS: nothing written, because of --strict", len(notes))
			}
			return o.Print(text)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail and write nothing if a feature cannot be exported")
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
			return nil, session.Refused("unexpected answer from the server: %w", err)
		}
	}
	return services, nil
}
