package doctor

import "fmt"

// Unserved is a service without an endpoint that takes new connections and is not known to be down.
type Unserved struct {
	Service   string
	State     string
	Endpoints string // how many are in which state: "1 down, 2 drained"
	Receiving bool   // clients are sent to endpoints that are down
	Drained   bool   // an endpoint is drained, by order or by weight 0
}

// services lists services that serve no clients.
func services(m *Machine) (out []Finding, _ error) {
	list := m.Facts.Unserved
	for _, u := range list[:min(len(list), maxListed)] {
		f := Finding{
			About: u.Service, Sure: Certain, What: fmt.Sprintf("service %s is %s: %s", u.Service, u.State, u.Endpoints),
			Why:     "no endpoint is available, so the service refuses all new clients",
			Command: "loxicmd describe lb " + u.Service + " shows why; repair an endpoint, or add one",
		}
		if u.Receiving {
			f.Why = "all endpoints that receive new connections are down, so most clients fail"
		}
		if u.Drained {
			f.Command = "loxicmd undrain endpoint IP:PORT (see: loxicmd get drain), raise a weight 0, or add an endpoint"
		}
		out = append(out, f)
	}
	if n := len(list) - maxListed; n > 0 {
		out = append(out, Finding{
			About: "others", Sure: Certain, What: fmt.Sprintf("%d more services serve no clients", n), Why: "their new clients are refused",
			Command: "loxicmd get lb",
		})
	}
	return out, nil
}
