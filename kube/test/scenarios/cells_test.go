package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/kube/test/rig"
)

// requests is the number of requests of each client to each service.
const requests = 20

// client is a place from which requests are made.
type client struct {
	name string
	dial dialer
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// service is a service of the balancer on n1, with a VIP of each family.
type service struct {
	name      string // on the balancer; "": none
	mode      string
	number    int    // number of the mode in the API
	endpoints string // description of the endpoints, for the table
	addresses []string
	port      int
	vips      []string
}

// TestCells checks that each client reaches each service of a balancer on n1, in each mode, by both
// IP versions, with pods on a bridge and on routed veths.
func TestCells(t *testing.T) {
	t.Parallel()
	for _, cni := range []string{"bridge", "ptp"} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, cni)
			installLoxilb(t, c)
			pods := runWeb(t, c)
			services := cells(c, pods)
			for _, s := range services {
				create(t, c, s)
			}
			clients := []client{
				{"outside", c.Outside.DialContext},
				{"LAN host", c.LAN.DialContext},
				{"pod on n1", pods["n1"].DialContext},
				{"pod on n2", pods["n2"].DialContext},
				{"n1 itself", c.Nodes[0].DialContext},
				{"n2 itself", c.Nodes[1].DialContext},
			}
			checkCells(t, clients, services)
			checkSourcePorts(t, c, pods)
		})
	}
}

// cells returns a service of each mode for each kind of endpoints.
func cells(c *rig.Cluster, pods map[string]rig.Pod) (services []service) {
	var nodes []string
	for _, n := range c.Nodes {
		nodes = append(nodes, n.Addresses()...)
	}
	for _, s := range []service{
		{endpoints: "NodePort", addresses: nodes, port: 30080},
		{endpoints: "pod on n1", addresses: pods["n1"].Addresses, port: 8080},
		{endpoints: "pod on n2", addresses: pods["n2"].Addresses, port: 8080},
	} {
		for _, mode := range modes() {
			s.mode, s.number = mode.word, mode.number
			s.vips = []string{fmt.Sprintf("10.77.0.%d", 101+len(services)), fmt.Sprintf("fd77::1:%d", 1+len(services))}
			services = append(services, s)
		}
	}
	return services
}

// mode is a mode of services, with its number in the REST API.
type mode struct {
	word   string
	number int
}

func modes() []mode { return []mode{{"default", 0}, {"onearm", 1}, {"auto", 6}} }

// create creates a service on the balancer, like a controller.
func create(t testing.TB, c *rig.Cluster, s service) {
	t.Helper()
	for i, vip := range s.vips {
		type object = map[string]any
		var endpoints []object
		for _, a := range s.addresses {
			if strings.Contains(a, ":") == (i == 1) {
				endpoints = append(endpoints, object{"endpointIP": a, "targetPort": s.port, "weight": 1})
			}
		}
		request(t, c, http.MethodPost, "config/loadbalancer", object{
			"serviceArguments": object{"externalIP": vip, "port": 80, "protocol": "tcp", "mode": s.number, "name": s.name},
			"endpoints":        endpoints,
		})
	}
}

// request makes a request to the REST API of the balancer on n1.
func request(t testing.TB, c *rig.Cluster, method, path string, body any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.Nodes[0].Addresses()[0]+":11111/netlox/v1/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DialContext: c.DialContext}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s %v", method, path, answer.Status, out, err)
	}
	return out
}

// answersByItsOwnRoute reports whether node 2 gets packets with the client's address, and has a
// route to the client that bypasses the balancer. Its answers then have a source address that the
// client does not expect. docs/kubernetes.md says which modes serve these clients.
func answersByItsOwnRoute(c client, s service) bool {
	if s.mode != "default" || s.endpoints == "pod on n1" {
		return false
	}
	return c.name == "outside" || c.name == "pod on n2" && s.endpoints == "NodePort"
}

// checkCells makes the requests of all clients to all services at the same time, and logs a table
// of how many were answered.
func checkCells(t *testing.T, clients []client, services []service) {
	t.Helper()
	answered := make([]int, 2*len(services)*len(clients))
	firstError := make([]error, len(answered))
	var all sync.WaitGroup
	for i := range answered {
		c, s := clients[i%len(clients)], services[i/len(clients)/2]
		vip := s.vips[i/len(clients)%2]
		if answersByItsOwnRoute(c, s) {
			answered[i] = -1
			continue
		}
		all.Go(func() { answered[i], firstError[i] = get(t.Context(), c, net.JoinHostPort(vip, "80")) })
	}
	all.Wait()
	var table strings.Builder
	for i, n := range answered {
		c, s, family := clients[i%len(clients)], services[i/len(clients)/2], "IPv4"
		if i/len(clients)%2 == 1 {
			family = "IPv6"
		}
		if i%len(clients) == 0 {
			fmt.Fprintf(&table, "\n%-8s %-10s %s", s.mode, s.endpoints, family)
		}
		if n < 0 {
			fmt.Fprintf(&table, "  %s -", c.name)
			continue
		}
		fmt.Fprintf(&table, "  %s %d", c.name, n)
		if n != requests {
			t.Errorf("%s, %s, %s, from %s: %d of %d requests are answered: %v", s.mode, s.endpoints, family, c.name, n, requests, firstError[i])
		}
	}
	t.Log(table.String())
}

// get makes requests to an address and returns the number of answers, and the first error.
func get(ctx context.Context, c client, address string) (answered int, firstError error) {
	const timeout = 2 * time.Second
	h := &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}}
	for range requests {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			return answered, err
		}
		answer, err := h.Do(r)
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if err == nil {
			answered++
		} else if firstError == nil {
			firstError = err
		}
	}
	return answered, firstError
}
