package compat

import (
	"net/http"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// maxGraph is the largest number of services in a graph: larger graphs are unreadable, and Grafana
// does not draw them.
const maxGraph = 1000

// GetNodeGraph replies with a graph of the services and their endpoints.
func (a *API) GetNodeGraph(w http.ResponseWriter, _ *http.Request) {
	a.CompleteLists.Answer(w, func() any { return a.graph(func(*lb.Service) bool { return true }) })
}

// GetServiceNodeGraph replies with a graph of the services with a name, or of the service with a
// key.
func (a *API) GetServiceNodeGraph(w http.ResponseWriter, _ *http.Request, service string) {
	g := a.graph(func(s *lb.Service) bool { return s.Name == service || s.Key.String() == service })
	if len(g.Nodes) == 0 {
		rest.RefuseField(http.StatusNotFound, "service", service, "is neither the name nor the key of a service", "").Write(w)
		return
	}
	rest.JSON(w, g)
}

func (a *API) graph(wanted func(*lb.Service) bool) v1.NodeGraph {
	g := v1.NodeGraph{
		SchemaVersion: 1, Meta: v1.NodeGraphMeta{PreferredVisualisationType: "nodeGraph"}, Nodes: []v1.GraphNode{}, Edges: []v1.GraphEdge{},
	}
	endpoints := map[string]int{} // where their nodes are
	services := 0
	drains := servicestate.DrainsOf(a.Store.Drains.All(a.Store.Snapshot()))
	a.eachService(func(s *lb.Service, stats *report.ServiceStats) {
		if services == maxGraph || !wanted(s) {
			return
		}
		services++
		id := s.Key.String()
		at := len(g.Nodes)
		known := servicestate.Gather(s, stats, drains, a.Health)
		g.Nodes = append(g.Nodes, v1.GraphNode{
			Id: id, Title: serviceName(s), Subtitle: s.Mode.String() + ", " + s.Algorithm.String(), Mainstat: float64(stats.Active),
			Secondarystat: bytesOf(&stats.EndpointStats), Color: "gray", Icon: "sitemap", NodeRadius: 40,
		})
		for i := range s.Endpoints {
			var counted report.EndpointStats
			if i < len(stats.Endpoints) {
				counted = stats.Endpoints[i]
			}
			color := colorOf(&known[i])
			if color == "green" {
				g.Nodes[at].Color = color // the service has an available endpoint
			}
			addEndpoint(&g, endpoints, id, &s.Endpoints[i], &counted, color)
		}
	})
	return g
}

// colorOf returns the color of an endpoint: green takes new connections, red is down, gray takes
// none for another reason.
func colorOf(e *servicestate.Endpoint) string {
	switch state := e.State(); {
	case state == servicestate.Down, state == servicestate.Panic:
		return "red"
	case e.Available:
		return "green"
	}
	return "gray"
}

// addEndpoint adds an edge, and the node at its end unless another service has it already.
func addEndpoint(g *v1.NodeGraph, nodes map[string]int, service string, e *lb.Endpoint, counted *report.EndpointStats, color string) {
	id := e.AddrPort().String()
	at, there := nodes[id]
	if !there {
		at = len(g.Nodes)
		nodes[id] = at
		g.Nodes = append(g.Nodes, v1.GraphNode{Id: id, Title: e.Addr.String(), Subtitle: "endpoint", Color: color, Icon: "server", NodeRadius: 30})
	}
	n := &g.Nodes[at]
	n.Mainstat += float64(counted.Active)
	n.Secondarystat += bytesOf(counted)
	g.Edges = append(g.Edges, v1.GraphEdge{
		Id: service + " " + id, Source: service, Target: id, Mainstat: float64(counted.Active), Secondarystat: bytesOf(counted), Thickness: 1, Color: color,
	})
}
