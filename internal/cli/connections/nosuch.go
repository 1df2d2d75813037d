package connections

import (
	"context"
	"slices"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/listing"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// checkService returns an error if neither a service nor a connection has the name or key that the
// filter asks for. Connections of a deleted service keep its name, so they are looked for too.
func (f *connectionFilter) checkService(ctx context.Context, o *session.Options) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	for _, name := range []string{f.servName, f.service} {
		if name == "" {
			continue
		}
		there, err := hasService(ctx, o, client, name)
		if err != nil || there {
			return err
		}
		only := v1.GetConntracksParams{ServName: f.servName, Service: f.service, Limit: 1}
		body, err := o.Answer(client.GetConntracks(ctx, &only))
		if err != nil {
			return err
		}
		var list v1.ConntrackList
		if err := session.Decode(body, &list); err != nil || len(list.CtAttr) > 0 {
			return err
		}
		return session.Refused("service %q not found: give its name, or its key such as 20.20.20.1:2020/tcp", name)
	}
	return nil
}

// hasService reports whether a service has a name or key. If the server does not return keys, it
// may have it.
func hasService(ctx context.Context, o *session.Options, client *v1.Client, name string) (bool, error) {
	if key, err := lb.ParseKey(name); err == nil {
		name = key.String()
	}
	list, err := session.As[v1.LoadbalanceList](o.Answer(client.GetLoadbalancers(ctx, &v1.GetLoadbalancersParams{Name: listing.JoinNames([]string{name})})))
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.LbAttr, func(e v1.LoadbalanceEntry) bool {
		return e.ServiceArguments.Name == name || e.Status == nil || e.Status.Key == name
	}), nil
}
