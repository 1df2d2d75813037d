package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"loxilb/internal/event"
	"loxilb/tools/markdown"
)

const eventsHead = `<!-- Generated from internal/event by tools/refdoc (make generate). Do not edit. -->

# Events

` + "`loxicmd get events`, `GET /netlox/v1/events`" + ` and the page show the last 4,096 events and stream
new ones. An event has the members ` + "`seq`, `time`, `kind`, `action`, `object` and `message`; `--kind=`" + `
selects kinds. Connections have a stream of their own: ` + "`loxicmd get ct -w`" + `.

## Kinds

`

// samples has an event of each kind.
func samples() []event.Body {
	endpoint := netip.MustParseAddrPort("31.31.31.1:5001")
	return []event.Body{
		event.Link{Index: 3, Name: "ep1", State: "down", Action: event.Changed},
		event.Address{Addr: netip.MustParseAddr("20.20.20.1"), Action: event.Added},
		event.Routes{Count: 1},
		event.Neighbour{Addr: endpoint.Addr(), Link: "ep1", Action: event.Changed},
		event.Health{Endpoint: endpoint, State: "down", Evidence: "tcp 31.31.31.1:5001: connection refused, 3 of 3", Name: "31.31.31.1_tcp_5001", Services: []string{"20.20.20.1:80/tcp"}, Users: 1},
		event.Object{ObjectKind: "service", Key: "20.20.20.1:80/tcp", Action: event.Applied},
		event.Pressure{Action: event.Began, Reason: "60000 of 65536 half-open"},
		event.Revision{Number: 41, Action: event.Removed},
		event.VIP{Prefix: netip.MustParsePrefix("20.20.20.1/32"), Action: event.Withdrawn, Why: "no endpoint takes connections"},
		event.Node{Action: event.Began, What: "the node drains: it waits until packets cease"},
		event.Peer{Node: "lb2", Address: "10.0.0.2:22222", Action: event.Began},
		event.Store{Servers: "etcd at 10.0.0.9:2379", Action: event.Failed, Reason: "connection refused"},
	}
}

// unwrap joins the lines of a comment.
func unwrap(comment string) string { return strings.ReplaceAll(comment, "\n// ", " ") }

// events returns the page. Comments of the event types describe kinds and actions.
func events(code string) (string, error) {
	var b strings.Builder
	b.WriteString(eventsHead)
	bodies := samples()
	kinds := event.Kinds()
	if len(bodies) != len(kinds) {
		return "", fmt.Errorf("there are %d kinds of events, and samples of %d", len(kinds), len(bodies))
	}
	for i, body := range bodies {
		if body.Kind() != kinds[i] {
			return "", fmt.Errorf("sample %d is of kind %s, not %s", i, body.Kind(), kinds[i])
		}
		name := strings.TrimPrefix(fmt.Sprintf("%T", body), "event.")
		what := regexp.MustCompile(`(?m)^// ` + name + ` (?:is|says that|reports that) ((?:.|\n// )*)\.\ntype ` + name + ` `).FindStringSubmatch(code)
		acts := regexp.MustCompile(`(?m)^// Act is ((?:.|\n// )*)\.\nfunc \((?:\w+ )?` + name + `\)`).FindStringSubmatch(code)
		if what == nil || acts == nil {
			return "", fmt.Errorf("internal/event/event.go does not say what %s is, and what its actions are", name)
		}
		b.WriteString(markdown.Item(fmt.Sprintf("`%s`: %s. Action: %s. Message: %s", body.Kind(), unwrap(what[1]), strings.ToLower(unwrap(acts[1])), body)))
	}
	return b.String(), nil
}
